"""Gymnasium, stable-baselines3, CleanRL and RLlib."""

from __future__ import annotations

from stabilizer.troubles.arithmetic import divisors, listed, whole
from stabilizer.troubles.trouble import Trouble, Values


def _minibatches(values: Values) -> dict[str, object]:
    buffer, batch = whole(values["buffer"]), whole(values["batch"])
    near = sorted(divisors(buffer, 2), key=lambda size: abs(size - batch))[:2]
    return {"near": listed(sorted(near))}


TROUBLES = (
    Trouble(
        id="gym/step-returns-five",
        shows=("not enough values to unpack (expected 5, got 4)",),
        cause="the caller expects five values of env.step (observation, reward, terminated, truncated, info), and the "
        "environment returns the four of the old gym",
        fix="write the environment for gymnasium: step returns terminated and truncated instead of done; for an old one use "
        "shimmy (gymnasium.make('GymV21Environment-v0', env=env))",
        source="Farama-Foundation/Gymnasium: migration guide", certainty="possible", kind="config-error",
        example="ValueError: not enough values to unpack (expected 5, got 4)",
    ),
    Trouble(
        id="gym/step-returned-four",
        shows=("too many values to unpack (expected 4)",),
        cause="the code expects four values of env.step, and the environment is one of gymnasium (gym from 0.26), which "
        "returns five: observation, reward, terminated, truncated, info",
        fix="obs, reward, terminated, truncated, info = env.step(action); done = terminated or truncated",
        source="Farama-Foundation/Gymnasium: migration guide", certainty="possible", kind="config-error",
        example="ValueError: too many values to unpack (expected 4)",
    ),
    Trouble(
        id="gym/reset-returns-two",
        shows=("too many values to unpack (expected 2)", "reset() got an unexpected keyword argument 'seed'",
               "reset() got an unexpected keyword argument 'options'", "'{name:w}Env' object has no attribute 'seed'",
               "The reset() method must accept a `seed` parameter"),
        frames=("env", "gym", "baselines", "vec_", "Env", "wrapper", "Wrapper"),
        cause="environment and library follow different interfaces: gymnasium calls reset(seed=..., options=...) and gets "
        "(observation, info); the old gym has env.seed() and returns the observation alone",
        fix="def reset(self, *, seed=None, options=None): super().reset(seed=seed); return obs, {{}}. Or install the release "
        "that the environment was written for (gym==0.21 with stable-baselines3<2, gymnasium with 2 and later)",
        source="Farama-Foundation/Gymnasium: migration guide", certainty="likely", kind="config-error",
        example='  File "/x/stable_baselines3/common/vec_env/dummy_vec_env.py", line 9, in reset\n'
        "TypeError: reset() got an unexpected keyword argument 'seed'",
    ),
    Trouble(
        id="gym/missing-environment",
        shows=("NameNotFound: Environment `{name:w}` doesn't exist", "NamespaceNotFound: Namespace {name:w} not found",
               "Environment {name:w} doesn't exist", "DeprecatedEnv: Environment version {name:w}"),
        cause="the environment {name} is not registered: its package is not installed or not imported, or the version was "
        "removed",
        fix="install and import it before make(): pip install 'gymnasium[atari]' ale-py and gymnasium.register_envs(ale_py); "
        "'gymnasium[mujoco]'; your own package with its register() call; or take the newest version (-v5)",
        source="Farama-Foundation/Gymnasium: environments", certainty="certain", kind="config-error",
        example="gymnasium.error.NamespaceNotFound: Namespace ALE not found. Have you installed the proper package for ALE?",
    ),
    Trouble(
        id="gym/missing-dependency",
        shows=("DependencyNotInstalled: {what:t}$", "Could not build wheels for {what:t}-py", "Failed building wheel for {what:t}-py$", "command 'swig' failed", "command 'swig.exe' failed"),
        cause="an optional part of gymnasium is not installed: {what}",
        fix="install the extra of that family: pip install 'gymnasium[box2d]', '[mujoco]', '[classic-control]' or '[atari]' "
        "(box2d needs swig)",
        source="Farama-Foundation/Gymnasium: installation", certainty="certain", kind="config-error",
        work=lambda v: {"what": v.get("what", "swig, which box2d is built with")},
        example="gymnasium.error.DependencyNotInstalled: Box2D is not installed, run `pip install gymnasium[box2d]`",
    ),
    Trouble(
        id="gym/old-setup",
        shows=("error in gym setup command", "extras_require' must be a dictionary whose values are strings"),
        cause="gym 0.21 cannot be built with a new setuptools",
        fix="pip install 'setuptools<66' 'wheel<0.40' first, then gym==0.21; better: move to gymnasium and "
        "stable-baselines3 2",
        source="DLR-RM/stable-baselines3: installation", certainty="certain", kind="config-error",
        example="error in gym setup command: 'extras_require' must be a dictionary whose values are strings or lists of strings",
    ),
    Trouble(
        id="gym/action-space",
        shows=("The algorithm only supports {names:t} as action spaces but {space:w}",),
        cause="the algorithm cannot act in this environment: its action space is {space}, and it supports {names}",
        fix="take PPO or A2C (any space), DQN for Discrete alone, SAC/TD3/DDPG for Box alone; or wrap the environment into "
        "such a space",
        source="DLR-RM/stable-baselines3: algorithms", certainty="certain", kind="config-error",
        example="AssertionError: The algorithm only supports (<class 'gymnasium.spaces.box.Box'>,) as action spaces but "
        "Discrete(2) was provided",
    ),
    Trouble(
        id="gym/observation-shape",
        shows=("Error: Unexpected observation shape {got:t} for Box environment, please use {want:t} or", "Unexpected "
               "observation shape {got:t} for {kind:w} environment", "Observation spaces do not match",
               "Action spaces do not match"),
        cause="the model meets observations or actions of another shape than it was trained with",
        fix="build the environment with the same wrappers in the same order as in training (VecFrameStack, VecTransposeImage, "
        "VecNormalize, flattening), and pass it to load(path, env=env)",
        source="DLR-RM/stable-baselines3: vectorised environments", certainty="certain", kind="config-error",
        example="ValueError: Error: Unexpected observation shape (84, 84, 3) for Box environment, please use (3, 84, 84) or "
        "(n_env, 3, 84, 84) for the observation shape.",
    ),
    Trouble(
        id="gym/nan-distribution",
        shows=("Expected parameter {name:w} ...of distribution {family:w}(...but found invalid values",),
        cause="the policy network gives NaN for the {name} of {family}: the gradients exploded, or an observation or reward "
        "was not finite",
        fix="clip gradients (grad_clip in RLlib, max_grad_norm 0.5 elsewhere) and lower the learning rate; normalise "
        "observations and rewards (VecNormalize); clamp the log standard deviation. VecCheckNan or torch.autograd.set_detect_"
        "anomaly(True) says where the first NaN arises",
        source="ray-project/ray#28283", certainty="likely",
        example="ValueError: Expected parameter loc (Tensor of shape (64, 6)) of distribution Normal(loc: torch.Size([64, 6]), "
        "scale: torch.Size([64, 6])) to satisfy the constraint Real(), but found invalid values:",
    ),
    Trouble(
        id="sb3/ppo-on-gpu",
        shows=("You are trying to run {name:w} on the GPU, but it is primarily intended to run on the CPU",),
        cause="a small network without images is slower on a GPU: copies cost more than the computation, and the environment "
        "runs on the CPU",
        fix="device='cpu', and more environments side by side (SubprocVecEnv); a low GPU use is normal here",
        source="DLR-RM/stable-baselines3#1245", severity="info", certainty="certain",
        example="UserWarning: You are trying to run PPO on the GPU, but it is primarily intended to run on the CPU when not using "
        "a CNN policy",
    ),
    Trouble(
        id="sb3/minibatch-truncated",
        shows=("You have specified a mini-batch size of {batch}, but because the `RolloutBuffer` is of size "
               "`n_steps * n_envs = {buffer}`",),
        cause="batch_size {batch} does not divide the buffer n_steps x n_envs = {buffer}, so the last minibatch is smaller",
        fix="set batch_size to {near}, or change n_steps",
        source="DLR-RM/stable-baselines3: PPO", severity="warn", certainty="certain", work=_minibatches,
        example="UserWarning: You have specified a mini-batch size of 50, but because the `RolloutBuffer` is of size `n_steps * "
        "n_envs = 2048`, after every 40 untruncated mini-batches, there will be a truncated mini-batch of size 48",
    ),
    Trouble(
        id="sb3/no-monitor",
        shows=("Evaluation environment is not wrapped with a ``Monitor`` wrapper",),
        cause="the environment has no Monitor inside, so wrappers change the lengths and rewards of episodes that are reported",
        fix="wrap it: Monitor(env) before other wrappers, or make_vec_env, which does so",
        source="DLR-RM/stable-baselines3: evaluation helper", severity="warn", certainty="certain",
        example="UserWarning: Evaluation environment is not wrapped with a ``Monitor`` wrapper. This may result in reporting "
        "modified episode lengths and rewards",
    ),
    Trouble(
        id="sb3/one-sample-batch",
        shows=("`n_steps * n_envs` must be greater than 1. Currently n_steps={steps} and n_envs={envs}",),
        cause="n_steps {steps} x n_envs {envs} gives one sample, whose advantage cannot be normalised",
        fix="raise n_steps (2048 is the default for one environment)",
        source="DLR-RM/stable-baselines3: PPO", certainty="certain", kind="config-error",
        example="AssertionError: `n_steps * n_envs` must be greater than 1. Currently n_steps=1 and n_envs=1",
    ),
    Trouble(
        id="sb3/action-not-normalised",
        shows=("We recommend you to use a symmetric and normalized Box action space",),
        cause="the action space is not -1..1: a Gaussian policy that starts near 0 with deviation 1 hardly reaches its ends",
        fix="make it Box(-1, 1) and rescale inside step() (RescaleAction), or use squashed actions (SAC)",
        source="DLR-RM/stable-baselines3: tips and tricks", severity="warn", certainty="likely",
        example="UserWarning: We recommend you to use a symmetric and normalized Box action space (range=[-1, 1]) cf. "
        "https://stable-baselines3.readthedocs.io/en/master/guide/rl_tips.html",
    ),
    Trouble(
        id="sb3/not-an-environment",
        shows=("Error: the environment must inherit from", "The environment is of type {kind:t}, not a Gymnasium environment"),
        cause="the environment is one of gym, and stable-baselines3 2 wants one of gymnasium",
        fix="inherit from gymnasium.Env (import gymnasium as gym), or pip install shimmy for an old one",
        source="DLR-RM/stable-baselines3: changelog 2.0", certainty="certain", kind="config-error",
        example="ValueError: The environment is of type <class 'env.Mine'>, not a Gymnasium environment. In this case, we expect "
        "OpenAI Gym to be installed",
    ),
    Trouble(
        id="sb3/old-pickle",
        shows=("Could not deserialize object {name:w}. Consider using `custom_objects` argument",),
        cause="the model was saved by another release of Python, numpy or stable-baselines3, and its {name} can't be read",
        fix="load(path, custom_objects={{'lr_schedule': lambda _: 3e-4, 'clip_range': lambda _: 0.2, 'learning_rate': 3e-4}}), or "
        "load with the releases it was saved with",
        source="DLR-RM/stable-baselines3: save format", severity="warn", certainty="certain",
        example="UserWarning: Could not deserialize object lr_schedule. Consider using `custom_objects` argument to replace this "
        "object.",
    ),
    Trouble(
        id="gym/worker-pipe-closed",
        shows=("EOFError$", "BrokenPipeError: [Errno 32] Broken pipe", "ConnectionResetError: [Errno 104] Connection reset by "
               "peer"),
        frames=("subproc_vec_env", "async_vector_env", "connection.py", "vec_env"),
        cause="a process of the vectorised environment died; its own exception stands above or was lost",
        fix="run the environment alone (DummyVecEnv, or check_env(env)) to see the exception; guard the script with if __name__ "
        "== '__main__'; fewer environments if memory was short",
        source="DLR-RM/stable-baselines3: vectorised environments", consequence=True, certainty="possible", kind="infrastructure",
        example='  File "/x/stable_baselines3/common/vec_env/subproc_vec_env.py", line 31, in _worker\n'
        "BrokenPipeError: [Errno 32] Broken pipe",
    ),
    Trouble(
        id="rllib/batch-not-reachable",
        shows=("`train_batch_size` ({batch}) cannot be achieved with your other settings (num_env_runners={workers} "
               "num_envs_per_env_runner={envs} rollout_fragment_length={fragment})",
               "`train_batch_size` ({batch}) cannot be achieved with your other settings (num_workers={workers} "
               "num_envs_per_worker={envs} rollout_fragment_length={fragment})"),
        cause="{workers} workers x {envs} environments x fragments of {fragment} steps never make a batch of {batch}",
        fix="set rollout_fragment_length='auto', or train_batch_size to a multiple of {workers} x {envs} x {fragment}",
        source="ray-project/ray: rllib, AlgorithmConfig", certainty="certain", kind="config-error",
        example="ValueError: `train_batch_size` (4000) cannot be achieved with your other settings (num_env_runners=3 "
        "num_envs_per_env_runner=1 rollout_fragment_length=500)! Try setting `rollout_fragment_length` to 'auto' OR 1333.",
    ),
    Trouble(
        id="rllib/workers-unhealthy",
        shows=("No eligible env-runners", "All the env-runners have been lost", "Number of healthy workers: 0", "RolloutWorker has "
               "no `input_reader` object"),
        cause="no worker that collects episodes is alive, or none was asked for",
        fix="look for the first exception of a RolloutWorker/EnvRunner above: the environment raised or memory was short. "
        "restart_failed_env_runners=True restarts them; num_env_runners 0 needs an environment in the driver",
        source="ray-project/ray: rllib, fault tolerance", consequence=True, certainty="possible", kind="infrastructure",
        example="RuntimeError: No eligible env-runners found",
    ),
    Trouble(
        id="rllib/old-api",
        shows=("No module named 'ray.rllib.agents'", "'{name:w}Config' object has no attribute 'rollouts'",
               "cannot import name 'PPOTrainer' from 'ray.rllib", "No module named 'ray.rllib.{name:w}'"),
        cause="RLlib's interface changed: agents became algorithms in Ray 2.0, rollouts() became env_runners() in 2.10, and the "
        "new stack (RLModule, Learner) is on by default since 2.40",
        fix="from ray.rllib.algorithms.ppo import PPOConfig; .env_runners(...) for .rollouts(...); for old custom models "
        ".api_stack(enable_rl_module_and_learner=False, enable_env_runner_and_connector_v2=False); or pin the old Ray",
        source="ray-project/ray: rllib, new API stack migration", certainty="certain", kind="config-error",
        example="ModuleNotFoundError: No module named 'ray.rllib.agents'",
    ),
    Trouble(
        id="rllib/env-not-registered",
        shows=("The env string you provided ('{name:w}') is",),
        cause="RLlib's workers don't know the environment {name}: it was registered in the driver alone, or not at all",
        fix="ray.tune.registry.register_env('{name}', lambda config: Env(config)), or pass the class itself",
        source="ray-project/ray: rllib, environments", certainty="certain", kind="config-error",
        example="EnvError: The env string you provided ('MyEnv-v0') is: a) Not a supported or -installed environment.",
    ),
)  # fmt: skip
