"""Hugging Face's own Trainer and Accelerator."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("nvidia.dali")
pytest.importorskip("transformers", reason="transformers is not installed: ddas_gpu[trainers]")
pytest.importorskip("accelerate", reason="accelerate is not installed: ddas_gpu[trainers]")

from accelerate import Accelerator
from transformers import TrainingArguments

import ddas_gpu
from ddas_gpu.adapters.huggingface import LoaderTrainer

pytestmark = pytest.mark.usefixtures("one_thread")


class Model(torch.nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, pixel_values, labels=None):
        logits = self.network(pixel_values)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def make_loader(arrays, schedule):
    return ddas_gpu.loader(arrays, schedule, 4, 3, "cpu", num_threads=1)


def train(network, arrays, schedule, folder, path=None, **settings):
    arguments = TrainingArguments(
        str(folder),
        num_train_epochs=3,
        use_cpu=True,
        disable_tqdm=True,
        report_to=[],
        **{"save_strategy": "no"} | settings,
    )
    tests = ddas_gpu.loader(arrays, batch_size=8, device="cpu", training=False)
    trainer = LoaderTrainer(
        Model(network), arguments, train_loader=make_loader(arrays, schedule), eval_loader=tests
    )
    trainer.train(resume_from_checkpoint=path)
    return trainer


def passes(arrays, schedule):
    batches = make_loader(arrays, schedule)
    return [images.clone() for _ in range(3) for images, _ in batches]


def test_the_trainer_sees_epoch_after_epoch(arrays, schedule, recorder, same_batches, tmp_path):
    network = recorder()
    trainer = train(network, arrays, schedule, tmp_path)
    assert same_batches(network.seen, passes(arrays, schedule))
    assert trainer.evaluate()["eval_loss"] > 0
    assert trainer.state.global_step == 18


@pytest.mark.parametrize("steps", [4, 6, 8])  # of 6 steps an epoch
def test_the_trainer_resumes_exactly(arrays, schedule, recorder, same_batches, tmp_path, steps):
    network = recorder()
    train(network, arrays, schedule, tmp_path, save_strategy="steps", save_steps=2)
    resumed = recorder()
    path = str(tmp_path / f"checkpoint-{steps}")
    trainer = train(resumed, arrays, schedule, tmp_path / "again", path)
    assert same_batches(resumed.seen, network.seen[steps:])
    assert trainer.state.global_step == 18


def test_accelerate_leaves_a_loader_as_it_is_and_keeps_its_state(
    arrays, schedule, recorder, same_batches, tmp_path
):
    def start(network):
        accelerator = Accelerator(cpu=True)
        optimizer = torch.optim.SGD(network.parameters(), lr=1e-4)
        network, optimizer, batches = accelerator.prepare(
            network, optimizer, make_loader(arrays, schedule)
        )
        accelerator.register_for_checkpointing(batches)
        return accelerator, network, optimizer, batches

    def run(accelerator, network, optimizer, batches, save_at=None):
        step = 0
        while batches.epoch < 3:
            for images, labels in batches:
                loss = torch.nn.functional.cross_entropy(network(images), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
                step += 1
                if step == save_at:
                    accelerator.save_state(str(tmp_path / "state"))

    whole, resumed = recorder(), recorder()
    run(*start(whole), save_at=8)
    assert same_batches(whole.seen, passes(arrays, schedule))
    again = start(resumed)
    again[0].load_state(str(tmp_path / "state"))
    run(*again)
    assert same_batches(resumed.seen, whole.seen[8:])
