#!/bin/bash
# GRPO with Open-R1 of February 2025 on 8 GPUs, one of them taken by vLLM (huggingface/open-r1#249).
ACCELERATE_LOG_LEVEL=info accelerate launch --config_file recipes/accelerate_configs/zero3.yaml \
    --num_processes=7 src/open_r1/grpo.py \
    --model_name_or_path Qwen/Qwen2.5-1.5B-Instruct \
    --dataset_name AI-MO/NuminaMath-TIR \
    --use_vllm true \
    --vllm_device auto \
    --vllm_gpu_memory_utilization 0.7 \
    --reward_funcs accuracy format \
    --learning_rate 2.0e-05 \
    --lr_scheduler_type cosine \
    --warmup_ratio 0.1 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 4 \
    --num_generations 8 \
    --max_prompt_length 512 \
    --max_completion_length 1024 \
    --num_train_epochs 1 \
    --logging_steps 1 \
    --save_strategy epoch \
    --bf16
