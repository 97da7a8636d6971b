"""A file of tensors that is written piece by piece is a file that safetensors reads."""

import pytest
import torch
from safetensors.torch import load

from stabilizer.training.tensor_file import NAMES, TensorFile


def tensors():
    torch.manual_seed(0)
    made = {str(dtype): (torch.randn(3, 5) * 10).to(dtype) for dtype in NAMES}
    made["transposed"] = torch.randn(4, 6).T
    made["scalar"], made["empty"] = torch.tensor(2.5), torch.zeros(0, 3)
    made["nan"] = torch.tensor([float("nan"), float("inf"), -0.0])
    return made


def test_safetensors_reads_every_type_bit_for_bit():
    read = load(bytes(TensorFile(tensors())))
    assert read.keys() == tensors().keys()
    for name, tensor in tensors().items():
        assert read[name].dtype == tensor.dtype and read[name].shape == tensor.shape
        assert torch.equal(read[name].reshape(-1).view(torch.uint8), tensor.contiguous().reshape(-1).view(torch.uint8))


def test_its_size_is_known_before_it_is_written():
    file = TensorFile(tensors())
    assert file.nbytes == len(bytes(file)) == sum(len(chunk) for chunk in file.chunks())


def test_every_tensor_is_aligned_to_its_numbers():
    import json

    data = bytes(TensorFile(tensors()))
    length = int.from_bytes(data[:8], "little")
    sizes = {name: dtype.itemsize for dtype, name in NAMES.items()}
    for entry in json.loads(data[8 : 8 + length]).values():
        assert (8 + length + entry["data_offsets"][0]) % sizes[entry["dtype"]] == 0


def test_no_tensors_are_a_file_too():
    assert load(bytes(TensorFile({}))) == {}


@pytest.mark.parametrize("mb", [0.0, 1024.0])
def test_a_state_too_large_for_memory_is_on_disk_only(trainer, mb):
    run = trainer(f"checkpoint.ring_mb={mb}")
    saved = run.snapshot()
    assert (run._ring.get(saved) is not None) == (mb > 0)
    before = run.state()
    run.train_step()
    run.load_checkpoint(saved, vary_data=False)
    assert run.state() == before
