"""Training methods: SFT, LoRA, QLoRA, continued pretraining, DPO, RLHF."""
