CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 \
NPROC_PER_NODE=8 \
swift rlhf \
    --rlhf_type grpo \
    --model Qwen/Qwen2.5-7B-Instruct \
    --reward_funcs accuracy format \
    --use_vllm true \
    --vllm_mode colocate \
    --vllm_gpu_memory_utilization 0.5 \
    --sleep_level 1 \
    --tuner_type full \
    --torch_dtype bfloat16 \
    --dataset my/prompts \
    --max_completion_length 2048 \
    --learning_rate 1e-6 \
    --per_device_train_batch_size 8 \
    --gradient_accumulation_steps 4 \
    --num_generations 8 \
    --beta 0.001 \
    --save_steps 100 \
    --eval_steps 100 \
    --max_length 2048 \
    --warmup_ratio 0.05 \
    --logging_steps 1 \
    --dataset_num_proc 4 \
    --log_completions true
