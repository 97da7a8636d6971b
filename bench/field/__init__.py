"""The field: what the command line answers to texts that users of trainers paste into public issue trackers."""
