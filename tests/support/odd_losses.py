"""Losses as people write them. Some compare the examples of a lot, count them, or remember earlier ones.

Every entry makes a fresh loss: one that remembers must not remember the run before. Outputs are [B, 3] and targets
classes, unless the entry is listed under other outputs below.
"""

import functools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES = 3


def losses(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


# Harmless.


def mean_of_the_lot(outputs: Tensor, targets: Tensor) -> Tensor:
    return losses(outputs, targets).mean()


def sum_of_the_lot(outputs: Tensor, targets: Tensor) -> Tensor:
    return losses(outputs, targets).sum()


def mean_times_count(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets) * len(targets)


def over_a_constant(outputs: Tensor, targets: Tensor) -> Tensor:
    return losses(outputs, targets).sum() / 64


def focal(outputs: Tensor, targets: Tensor) -> Tensor:
    ce = losses(outputs, targets)
    return (1 - torch.exp(-ce)) ** 2 * ce


def one_hot_brier(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.softmax(1) - F.one_hot(targets, CLASSES)).square().sum(1)


def public_class_weights(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, weight=torch.tensor([1.0, 2.0, 0.5]), reduction="none")


def flipped_labels(outputs: Tensor, targets: Tensor) -> Tensor:
    """Each label is replaced by a random one now and then."""
    random = torch.randint_like(targets, CLASSES)
    return losses(outputs, torch.where(torch.rand(targets.shape) < 0.1, random, targets))


def with_entropy_bonus(outputs: Tensor, targets: Tensor) -> Tensor:
    entropy = torch.distributions.Categorical(logits=outputs, validate_args=False).entropy()
    return (losses(outputs, targets) - 0.1 * entropy).mean()


def hinge_by_loop(outputs: Tensor, targets: Tensor) -> Tensor:
    rows = [(output - output[target] + 1).clamp(min=0).sum() for output, target in zip(outputs, targets, strict=True)]
    return torch.stack(rows)


class SmoothedLabels(nn.Module):
    def __init__(self, share: float = 0.1) -> None:
        super().__init__()
        self.share = share

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        log = outputs.log_softmax(1)
        return -(1 - self.share) * log.gather(1, targets[:, None])[:, 0] - self.share * log.mean(1)


class Temperature(nn.Module):
    """A constant that was fitted elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("temperature", torch.tensor(2.0))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return losses(outputs / self.temperature, targets)


# Examples meet in the loss.


def info_nce(outputs: Tensor, targets: Tensor) -> Tensor:
    z = F.normalize(outputs, dim=1)
    return F.cross_entropy(z @ z.t() / 0.5, torch.arange(len(z)), reduction="none")


def nt_xent(outputs: Tensor, targets: Tensor) -> Tensor:
    """SimCLR: examples with the same label attract each other, all others repel."""
    z = F.normalize(outputs, dim=1)
    similar = (z @ z.t() / 0.5).masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)
    same = (targets[:, None] == targets[None]).float().fill_diagonal_(0.0)
    return -(similar.log_softmax(1) * same).sum(1) / same.sum(1).clamp(min=1)


def hardest_triplets(outputs: Tensor, targets: Tensor) -> Tensor:
    distances = (outputs[:, None] - outputs[None]).square().sum(2)
    same = targets[:, None] == targets[None]
    farthest = distances.masked_fill(~same, 0.0).amax(1)
    nearest = distances.masked_fill(same, 1e3).amin(1)
    return F.relu(farthest - nearest + 1)


def over_the_mean_with_noise(outputs: Tensor, targets: Tensor) -> Tensor:
    """Scaled by what the lot loses on average, with a little randomness on top."""
    ce = losses(outputs, targets)
    return ce / ce.detach().mean() * (1 + 0.01 * torch.rand(()))


def over_the_detached_mean(outputs: Tensor, targets: Tensor) -> Tensor:
    ce = losses(outputs, targets)
    return ce / (ce.mean().detach() + 1e-6)


def advantage(outputs: Tensor, targets: Tensor) -> Tensor:
    """REINFORCE with rewards standardised over the lot."""
    reward = (outputs.argmax(1) == targets).float() - 0.1 * outputs.detach().square().sum(1)
    standard = (reward - reward.mean()) / (reward.std(unbiased=False) + 1e-3)
    return -standard * outputs.log_softmax(1).gather(1, targets[:, None])[:, 0]


def baseline_of_earlier_rows(outputs: Tensor, targets: Tensor) -> Tensor:
    ce = losses(outputs, targets)
    before = ce.detach().cumsum(0) - ce.detach()
    return ce * (1 + (ce.detach() - before / torch.arange(1, len(ce) + 1)).tanh())


def balanced_by_count(outputs: Tensor, targets: Tensor) -> Tensor:
    counts = torch.bincount(targets, minlength=CLASSES).float()
    return F.cross_entropy(outputs, targets, weight=1 / (counts + 1), reduction="none")


def balanced_by_unique(outputs: Tensor, targets: Tensor) -> Tensor:
    _, where, counts = torch.unique(targets, return_inverse=True, return_counts=True)
    return losses(outputs, targets) / counts[where]


def smoothed_by_the_labels_of_the_lot(outputs: Tensor, targets: Tensor) -> Tensor:
    shares = F.one_hot(targets, CLASSES).float().mean(0)
    return 0.9 * losses(outputs, targets) - 0.1 * (outputs.log_softmax(1) * shares).sum(1)


def hardest_half(outputs: Tensor, targets: Tensor) -> Tensor:
    """Online hard example mining: only the larger half of the losses counts."""
    ce = losses(outputs, targets)
    return ce * (ce >= ce.detach().topk((len(ce) + 1) // 2).values[-1])


def root_mean_square(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - F.one_hot(targets, CLASSES)).square().mean().sqrt()


def largest_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return losses(outputs, targets).max()


def soft_maximum(outputs: Tensor, targets: Tensor) -> Tensor:
    """Distributionally robust: hard examples weigh more."""
    return losses(outputs, targets).logsumexp(0)


def dice_over_the_lot(outputs: Tensor, targets: Tensor) -> Tensor:
    shares, wanted = outputs.softmax(1), F.one_hot(targets, CLASSES).float()
    return 1 - 2 * (shares * wanted).sum() / (shares.square().sum() + wanted.sum())


def masked_mean(outputs: Tensor, targets: Tensor) -> Tensor:
    """Class 0 means "unknown"; the mean is over those that are known, of which there may be one or many."""
    known = (targets != 0).float()
    return (losses(outputs, targets) * known).sum() / known.sum().clamp(min=1)


def pairwise_ranking(outputs: Tensor, targets: Tensor) -> Tensor:
    scores, label = outputs[:, 0], (targets == 0).float()
    return (F.softplus(scores[None] - scores[:, None]) * label[:, None] * (1 - label[None])).mean(1)


def cox_partial_likelihood(outputs: Tensor, targets: Tensor) -> Tensor:
    """Survival analysis: every patient is compared with all who lived longer."""
    risk, time = outputs[:, 0], outputs.detach()[:, 1]
    at_risk = (time[None] >= time[:, None]).float()
    return torch.log((risk.exp()[None] * at_risk).sum(1)) - risk


def variance_and_covariance(outputs: Tensor, targets: Tensor) -> Tensor:
    """VICReg: no output may collapse over the lot."""
    spread = F.relu(1 - outputs.std(0, unbiased=False))
    centred = outputs - outputs.mean(0)
    off = (centred.t() @ centred / len(outputs)).square().sum()
    return losses(outputs, targets) + 0.1 * spread.mean() + 0.1 * off


def by_row_number(outputs: Tensor, targets: Tensor) -> Tensor:
    """A curriculum: later rows of the lot count more."""
    return losses(outputs, targets) * (1 + torch.arange(len(targets))) / 2


def over_the_count(outputs: Tensor, targets: Tensor) -> Tensor:
    return losses(outputs, targets) / len(targets)


class MovingAverage(nn.Module):
    """Losses over a moving average of what lots have lost so far."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.ones(()))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        ce = losses(outputs, targets)
        self.average.mul_(0.9).add_(0.1 * ce.detach().mean())
        return ce / self.average


class Centred(nn.Module):
    """DINO: outputs are centred by a moving mean over lots."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(CLASSES))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        value = losses(outputs - self.centre, targets)
        with torch.no_grad():
            self.centre = 0.9 * self.centre + 0.1 * outputs.mean(0)
        return value


class RewardScale:
    """Running mean and variance of the losses (Welford), in plain attributes of a callable object."""

    def __init__(self) -> None:
        self.count, self.mean, self.square = 0, 0.0, 1.0

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        ce = losses(outputs, targets)
        for value in ce.detach().tolist():
            self.count += 1
            before, self.mean = self.mean, self.mean + (value - self.mean) / self.count
            self.square += (value - self.mean) * (value - before)
        return ce / (self.square / max(self.count, 1)) ** 0.5


def baseline_of_earlier_lots():
    """A list in a closure, with what earlier lots have lost."""
    seen: list[Tensor] = []

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        ce = losses(outputs, targets)
        weight = 1 + (ce.detach() - torch.stack(seen).mean()).tanh() if seen else torch.ones_like(ce)
        seen.append(ce.detach().mean())
        return ce * weight

    return loss


def kept_for_a_plot():
    """A list in a closure, which nothing reads while training."""
    history: list[Tensor] = []

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        ce = losses(outputs, targets)
        history.append(ce.detach())
        return ce

    return loss


def always(loss):
    """A maker of a loss that keeps nothing."""
    return lambda: loss


HARMLESS = {
    "loss: mean": always(mean_of_the_lot),
    "loss: sum": always(sum_of_the_lot),
    "loss: mean times count": always(mean_times_count),
    "loss: sum over a constant": always(over_a_constant),
    "loss: focal": always(focal),
    "loss: one-hot Brier": always(one_hot_brier),
    "loss: public class weights": always(public_class_weights),
    "loss: labels flipped at random": always(flipped_labels),
    "loss: entropy bonus": always(with_entropy_bonus),
    "loss: hinge by a Python loop": always(hinge_by_loop),
    "loss: smoothed labels, a module": SmoothedLabels,
    "loss: a module with a constant buffer": Temperature,
    "loss: torch's module": nn.CrossEntropyLoss,
    "loss: torch's module, sum, smoothing": lambda: nn.CrossEntropyLoss(reduction="sum", label_smoothing=0.1),
    "loss: a partial": lambda: functools.partial(F.cross_entropy, label_smoothing=0.1),
    "loss: ignored class": lambda: nn.CrossEntropyLoss(ignore_index=0),
}
MIXING = {
    "loss: InfoNCE": always(info_nce),
    "loss: NT-Xent": always(nt_xent),
    "loss: hardest triplets of the lot": always(hardest_triplets),
    "loss: over the lot's mean, with noise": always(over_the_mean_with_noise),
    "loss: over the detached mean": always(over_the_detached_mean),
    "loss: rewards standardised over the lot": always(advantage),
    "loss: baseline of earlier rows": always(baseline_of_earlier_rows),
    "loss: class counts of the lot": always(balanced_by_count),
    "loss: torch.unique counts": always(balanced_by_unique),
    "loss: labels of the lot for smoothing": always(smoothed_by_the_labels_of_the_lot),
    "loss: hardest half of the lot": always(hardest_half),
    "loss: largest of the lot": always(largest_loss),
    "loss: log-sum-exp over the lot": always(soft_maximum),
    "loss: pairwise ranking": always(pairwise_ranking),
    "loss: Cox partial likelihood": always(cox_partial_likelihood),
    "loss: variance and covariance of the lot": always(variance_and_covariance),
    "loss: by row number": always(by_row_number),
    "loss: over the count of the lot": always(over_the_count),
    "loss: moving average in a buffer": MovingAverage,
    "loss: moving centre": Centred,
    "loss: running reward scale": RewardScale,
    "loss: baseline of earlier lots in a closure": baseline_of_earlier_lots,
}
EITHER = {
    "loss: history in a closure": kept_for_a_plot,
    # One number for the lot. Taken of each example alone it is safe, and in some lots it comes close to their mean.
    "loss: mean over known labels": always(masked_mean),
    "loss: dice over the lot": always(dice_over_the_lot),
    "loss: root mean square": always(root_mean_square),
}
# So many examples are sure to have two with the same label, or some with other ones.
MEET_IN = {
    "loss: NT-Xent": 4,
    "loss: hardest triplets of the lot": 4,
    "loss: class counts of the lot": 4,
    "loss: torch.unique counts": 4,
    "loss: pairwise ranking": 5,
}


# Outputs of another shape.


def values_of_a_sequence(outputs: Tensor, targets: Tensor) -> Tensor:
    """[B, T]: one value a position."""
    return (outputs - targets).square()


def missing_axis(outputs: Tensor, targets: Tensor) -> Tensor:
    """Outputs [B, 1] minus targets [B] is [B, B]: the well-known broadcasting bug."""
    return (outputs - targets).square().mean()


def missing_axis_by_row(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().mean(1)
