"""Hugging Face's own Trainer and Accelerator."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("nvidia.dali")
pytest.importorskip("transformers", reason="transformers is not installed: ddas_gpu[trainers]")
pytest.importorskip("accelerate", reason="accelerate is not installed: ddas_gpu[trainers]")

from accelerate import Accelerator
from transformers import Trainer, TrainerCallback, TrainingArguments

import ddas_gpu
from ddas_gpu.adapters.huggingface import LoaderTrainer, PolicyEpochs

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


class Photos(torch.utils.data.Dataset):
    """Notes the epoch of the policy with every image."""

    def __init__(self, arrays, policy):
        self.images, self.labels, self.policy, self.epochs = *arrays, policy, []

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        self.epochs.append(self.policy.epoch)
        image = self.policy(self.images[index], index=index)
        return {
            "pixel_values": torch.from_numpy(image).permute(2, 0, 1) / 255,
            "labels": int(self.labels[index]),
        }


class StopAt(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = state.global_step == self.step


@pytest.mark.parametrize("accumulated", [1, 2])
@pytest.mark.parametrize("stop", [1, 2, 3, 4, 5])
def test_a_policy_in_the_data_set_follows_the_epochs(
    arrays, schedule, recorder, tmp_path, stop, accumulated
):
    """In training and in resuming, within an epoch and at its end: 6 batches per epoch."""

    def fit(path=None, *callbacks):
        policy = ddas_gpu.PolicyTransform(schedule, epochs=3)
        data = Photos(arrays, policy)
        arguments = TrainingArguments(
            str(tmp_path),
            num_train_epochs=3,
            save_strategy="steps",
            save_steps=1,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=accumulated,
            dataloader_pin_memory=False,
            use_cpu=True,
            disable_tqdm=True,
            report_to=[],
            logging_strategy="no",
        )
        callbacks = [PolicyEpochs(policy), *callbacks]
        trainer = Trainer(Model(recorder()), arguments, train_dataset=data, callbacks=callbacks)
        trainer.train(resume_from_checkpoint=path)
        return data.epochs

    count = len(arrays[0])
    fit(None, StopAt(stop))
    rest = fit(str(tmp_path / f"checkpoint-{stop}"))
    first, left = divmod(4 * stop * accumulated, 4 * 6)
    expected = [first] * (count - left) + [e for e in range(first + 1, 3) for _ in range(count)]
    assert rest[-len(expected) :] == expected


def test_a_path_has_no_epochs_to_set():
    with pytest.raises(TypeError, match="a str has no set_epoch: give a BatchPolicy"):
        PolicyEpochs("policy.json")


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
