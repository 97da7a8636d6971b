NUM_GPUS=8
CKPT_ARGS=(
   --hf-checkpoint models/qwen3-4b
   --ref-load models/qwen3-4b_torch_dist
   --save out/qwen3-4b
   --save-interval 20
)
ROLLOUT_ARGS=(
   --prompt-data data/math.jsonl
   --input-key prompt
   --rm-type deepscaler
   --num-rollout 500
   --rollout-batch-size 32
   --n-samples-per-prompt 8
   --rollout-max-response-len 8192
   --rollout-temperature 1
   # --micro-batch-size 1
   --global-batch-size 256
)
GRPO_ARGS=(
   --advantage-estimator grpo
   --use-kl-loss
   --kl-loss-coef 0.00
   --eps-clip 0.2
   --eps-clip-high 0.28
)
ray job submit --address="http://127.0.0.1:8265" \
   -- python3 train.py \
   --actor-num-nodes 1 \
   --actor-num-gpus-per-node ${NUM_GPUS} \
   --colocate \
   --tensor-model-parallel-size 2 \
   --use-dynamic-batch-size \
   --max-tokens-per-gpu 9216 \
   --lr 1e-6 \
   --eval-interval 20 \
   --eval-prompt-data aime data/aime.jsonl \
   ${CKPT_ARGS[@]} \
   "${ROLLOUT_ARGS[@]}" \
   ${GRPO_ARGS[@]}
