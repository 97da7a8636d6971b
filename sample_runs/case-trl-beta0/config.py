"""GRPO with TRL of spring 2025: gradient norm unstable after 10,000 steps (huggingface/trl#2980)."""

from trl import GRPOConfig, GRPOTrainer

DEVICE_BATCH = 16

training_args = GRPOConfig(
    output_dir="out",
    num_train_epochs=1,
    warmup_steps=100,
    per_device_train_batch_size=DEVICE_BATCH,
    gradient_accumulation_steps=4,
    bf16=True,
    optim="adamw_bnb_8bit",
    learning_rate=3e-6,
    logging_steps=1,
    gradient_checkpointing=False,
    seed=42,
    max_prompt_length=256,
    max_completion_length=128,
    num_generations=16,
    temperature=1.0,
    num_iterations=4,
    beta=0.0,  # no KL
    use_vllm=True,
    vllm_gpu_memory_utilization=0.8,
    vllm_max_model_len=4096,
    vllm_dtype="bfloat16",
    vllm_device="auto",
    vllm_enable_prefix_caching=True,
    epsilon=0.2,
)


def train(model, reward, data):
    GRPOTrainer(model=model, reward_funcs=reward, args=training_args, train_dataset=data).train()
