"""Lightning's own Trainer: epochs, ranks, checkpoints."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

pytest.importorskip("lightning", reason="Lightning is not installed: ddas_gpu[trainers]")

import lightning.pytorch as pl
from lightning.pytorch.callbacks import ModelCheckpoint

import ddas_gpu
from ddas_gpu import BatchPolicy, PolicyTransform
from ddas_gpu.adapters.lightning import PolicyDataModule, PolicyEpochs

pytestmark = pytest.mark.usefixtures("one_thread")


class Module(pl.LightningModule):
    def __init__(self, network, policy=None):
        super().__init__()
        self.network, self.policy = network, policy

    def on_after_batch_transfer(self, batch, dataloader_idx):
        images, labels = batch
        if self.policy is not None and self.trainer.training:
            images = self.policy(images)
        return images.float(), labels

    def training_step(self, batch, _):
        return torch.nn.functional.cross_entropy(self.network(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("right", (self.network(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-4)


def trainer(folder, **settings):
    warnings.filterwarnings("ignore", module="lightning")
    usual = {
        "max_epochs": 3,
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": folder,
    }
    return pl.Trainer(**usual | settings)


def make_loader(arrays, schedule, **settings):
    return ddas_gpu.loader(arrays, schedule, 4, 3, "cpu", num_threads=1, **settings)


def test_a_loader_is_trained_on_epoch_by_epoch(arrays, schedule, recorder, same_batches, tmp_path):
    pytest.importorskip("nvidia.dali")
    batches = make_loader(arrays, schedule)
    expected = [images.clone() for _ in range(3) for images, _ in batches]
    network = recorder()
    trainer(tmp_path).fit(Module(network), make_loader(arrays, schedule))
    assert same_batches(network.seen, expected)


def test_a_limit_does_not_leave_the_epochs_behind(
    arrays, schedule, recorder, same_batches, tmp_path
):
    pytest.importorskip("nvidia.dali")
    batches = make_loader(arrays, schedule)
    passes = [[images.clone() for images, _ in batches][:2] for _ in range(3)]
    network = recorder()
    fit = trainer(tmp_path, limit_train_batches=2)
    fit.fit(Module(network), make_loader(arrays, schedule))
    assert same_batches(network.seen, [batch for each in passes for batch in each])


def every_two_steps(folder):
    return ModelCheckpoint(folder, "{step}", every_n_train_steps=2, save_top_k=-1)


@pytest.mark.parametrize("steps", [2, 6, 10])  # of 6 steps an epoch
@pytest.mark.parametrize("callback", [False, True])
def test_a_checkpoint_resumes_the_loader_exactly(
    arrays, schedule, recorder, same_batches, tmp_path, steps, callback
):
    pytest.importorskip("nvidia.dali")

    def fit(network, *callbacks, path=None):
        batches = make_loader(arrays, schedule)
        callbacks = [*callbacks, PolicyEpochs(batches)] if callback else [*callbacks]
        run = trainer(tmp_path, callbacks=callbacks, enable_checkpointing=path is None)
        run.fit(Module(network), batches, ckpt_path=path)

    whole, resumed = recorder(), recorder()
    fit(whole, every_two_steps(tmp_path))
    fit(resumed, path=tmp_path / f"step={steps}.ckpt")
    assert same_batches(resumed.seen, whole.seen[steps:])


class Images(Dataset):
    def __init__(self, arrays, transform=None):
        self.images, self.labels = arrays
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        if self.transform is not None:
            image = self.transform(image, index=index)
        return torch.from_numpy(np.array(image)), int(self.labels[index])


def test_a_batch_policy_after_the_transfer(arrays, schedule, recorder, same_batches, tmp_path):
    policy = BatchPolicy(schedule, epochs=3, seed=1)
    network = recorder()
    data = DataLoader(Images(arrays), batch_size=8)
    fit = trainer(tmp_path, callbacks=[PolicyEpochs(policy)])
    fit.fit(Module(network, policy), data, DataLoader(Images(arrays), batch_size=8))
    expected = []
    for epoch in range(3):
        policy.set_epoch(epoch)
        expected += [policy(images).float() for images, _ in data]
    assert same_batches(network.seen, expected)


def test_a_checkpoint_resumes_the_batch_policy(arrays, schedule, recorder, same_batches, tmp_path):
    def fit(network, *callbacks, path=None):
        policy = BatchPolicy(schedule, epochs=3, seed=1)
        data = DataLoader(Images(arrays), batch_size=22)
        run = trainer(
            tmp_path,
            callbacks=[*callbacks, PolicyEpochs(policy)],
            enable_checkpointing=path is None,
        )
        run.fit(Module(network, policy), data, ckpt_path=path)

    whole, resumed = recorder(), recorder()
    fit(whole, ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1))
    fit(resumed, path=tmp_path / "epoch=0.ckpt")
    assert same_batches(resumed.seen, whole.seen[1:])


def test_a_transform_in_persistent_workers(arrays, schedule, recorder, same_batches, tmp_path):
    policy = PolicyTransform(schedule, epochs=3, seed=1)
    data = DataLoader(Images(arrays, policy), 8, num_workers=1, persistent_workers=True)
    network = recorder()
    trainer(tmp_path, callbacks=[PolicyEpochs(policy)]).fit(Module(network), data)
    expected = []
    for epoch in range(3):
        policy.set_epoch(epoch)
        shown = [policy(image, index=i) for i, image in enumerate(arrays[0])]
        expected += list(torch.from_numpy(np.stack(shown)).float().split(8))
    assert same_batches(network.seen, expected)


def test_a_data_module(arrays, schedule, recorder, tmp_path):
    pytest.importorskip("nvidia.dali")
    data = PolicyDataModule(arrays, schedule, arrays, epochs=3, batch_size=4, device="cpu")
    images = torch.cat([images for images, _ in data.val_dataloader()])
    assert torch.allclose(images.mean((0, 2, 3)), torch.zeros(3), atol=1e-4)
    network = recorder()
    fit = trainer(tmp_path)
    fit.fit(Module(network), data)
    assert len(network.seen) == 18 and 0 <= fit.callback_metrics["right"] <= 1


def test_a_data_module_without_validation(arrays, schedule, recorder, tmp_path):
    pytest.importorskip("nvidia.dali")
    fit = trainer(tmp_path)
    data = PolicyDataModule(arrays, schedule, epochs=3, batch_size=4, device="cpu")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit.fit(Module(recorder()), data)
    assert fit.current_epoch == 3
    said = [str(warning.message) for warning in caught]
    assert not any("length of" in message for message in said)  # of an empty list
    assert any("no `val_dataloader`" in message for message in said)  # Lightning's own words


def test_ranks_that_lightning_starts_share_the_images(arrays, schedule, recorder, tmp_path):
    """The loader is made before there are ranks."""
    pytest.importorskip("nvidia.dali")
    fit = trainer(tmp_path, devices=2, strategy="ddp_spawn", max_epochs=1)
    fit.fit(Sharing(recorder(), tmp_path), make_loader(arrays, schedule))
    seen = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    assert sorted(torch.cat(seen).tolist()) == list(range(22))


class Sharing(Module):
    def __init__(self, network, folder):
        super().__init__(network)
        self.folder, self.labels = folder, []

    def training_step(self, batch, _):
        self.labels.append(batch[1].clone())
        return super().training_step(batch, _)

    def on_train_end(self):
        torch.save(torch.cat(self.labels), self.folder / f"{self.global_rank}.pt")


def test_a_policy_without_epochs_is_refused():
    with pytest.raises(TypeError, match="a str has no set_epoch"):
        PolicyEpochs("policy.json")
