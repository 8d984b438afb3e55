"""Publishers on the model of the topic."""

from collections.abc import Iterator
from contextlib import contextmanager

from millrace.producer.publish.opening import Basis, TailHint
from millrace.producer.publish.publisher import Publisher
from tests.kit.publisher.model import START, ModelCodec, ModelDriver, ModelTopic, model_config


def opened(topic: ModelTopic, *, epoch: int = 7, hint: TailHint | None = None) -> Publisher:
    """Return a publisher on the model."""
    return Publisher.open_with(
        ModelDriver(topic),
        model_config(epoch),
        codec=ModelCodec(epoch),
        verify_lease=lambda: None,
        basis=Basis(START, hint),
    )


@contextmanager
def running(topic: ModelTopic, *, epoch: int = 7) -> Iterator[Publisher]:
    """Return a publisher on the model that is closed at the end."""
    publisher = opened(topic, epoch=epoch)
    yield publisher
    publisher.close()
