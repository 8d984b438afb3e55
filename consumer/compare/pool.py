"""Runs a plain function over chunks: in threads of this process, or in executors of Spark.

    Threads      each thread has its own sessions
    Executors    each thread gives one chunk to an executor, which opens sessions for it (``compare_order``)

A chunk is read again from its beginning if its executor is lost. What a lost executor has repaired stays repaired, and
is recorded on the target; its counts are lost.
"""

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from millrace.consumer.compare.compare_order import CompareOrder
from millrace.consumer.compare.sides import Ends, Sides
from millrace.consumer.turn.order import Calls
from millrace.errors import Retryable
from millrace.log import get_logger

G = TypeVar("G")
A = TypeVar("A")
_Given = TypeVar("_Given", contravariant=True)
_Answer = TypeVar("_Answer", covariant=True)

Orders = Calls[CompareOrder, Any]

TRIES_MAX = 3  # of a chunk, for executors that are lost

_log = get_logger("compare")


class Pool(Protocol):
    """Several sessions on each side, and something that uses them at the same time."""

    def run(self, work: Callable[[Sides, G], A], given: Iterator[G]) -> Generator[A, None, None]:
        """The answer of ``work`` for each value, as they end. Raises the first error of ``work``. To be closed."""


class Threads:
    """``count`` threads. Each takes the next value when it has ended one."""

    def __init__(self, ends: Ends, count: int) -> None:
        self._ends, self._count = ends, count

    def run(self, work: Callable[[Sides, G], A], given: Iterator[G]) -> Generator[A, None, None]:
        """See ``Pool``. A caller that stops early breaks the sessions, so that no thread waits for a server."""
        return _Crew(lambda: _Here(Sides(self._ends), work), given, self._count).answers()


class Executors:
    """At most ``count`` chunks at the same time, each in an executor."""

    def __init__(self, orders: Orders, ends: Ends, count: int) -> None:
        self._orders, self._ends, self._count = orders, ends, count

    def run(self, work: Callable[[Sides, G], A], given: Iterator[G]) -> Generator[A, None, None]:
        """See ``Pool``. ``work`` and each value are sent. A caller that stops early ends the orders under way."""
        return _Crew(lambda: _There(self._orders, self._ends, work), given, self._count).answers()


class _Hand(Protocol[_Given, _Answer]):
    """The place where one thread of a pool works."""

    def do(self, given: _Given) -> _Answer: ...

    def cut(self) -> None:
        """End the work under way, from any thread; it raises."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Here(Generic[G, A]):
    sides: Sides
    work: Callable[[Sides, G], A]

    def do(self, given: G) -> A:
        return self.work(self.sides, given)

    def cut(self) -> None:
        self.sides.cut()

    def close(self) -> None:
        self.sides.close()


@dataclass(slots=True)
class _There(Generic[G, A]):
    orders: Orders
    ends: Ends
    work: Callable[[Sides, G], A]
    is_cut: bool = False

    def do(self, given: G) -> A:
        order = CompareOrder(self.ends, self.work, given)
        for number in range(1, TRIES_MAX):
            try:
                answer: A = self.orders.call(order)
            except Retryable as exc:
                if exc.code != "MR-5050" or self.is_cut:
                    raise
                _log.warning(
                    "an executor was lost; the chunk is repeated", number=number, error=exc
                )
            else:
                return answer
        last: A = self.orders.call(order)
        return last

    def cut(self) -> None:
        self.is_cut = True
        self.orders.stop()

    def close(self) -> None:
        """An executor has closed its sessions."""


class _Crew(Generic[G, A]):
    """``count`` threads, each with a hand that ``begin`` makes."""

    def __init__(self, begin: Callable[[], _Hand[G, A]], given: Iterator[G], count: int) -> None:
        self._begin, self._given = begin, given
        self._taking = threading.Lock()
        self._open: list[_Hand[G, A]] = []
        self._is_over = False
        # a thread has at most one answer that the caller has not taken
        self._answers: queue.Queue[list[A] | BaseException | None] = queue.Queue(maxsize=count)
        self._threads = [
            threading.Thread(target=self._run, name=f"compare-{number}", daemon=True)
            for number in range(count)
        ]

    def answers(self) -> Generator[A, None, None]:
        left = len(self._threads)
        try:
            for thread in self._threads:
                thread.start()
            while left:
                answer = self._answers.get()
                if isinstance(answer, BaseException):
                    raise answer
                if answer is None:
                    left -= 1
                else:
                    yield from answer
        finally:
            self._end()

    def _end(self) -> None:
        self._is_over = True
        for hand in self._open:
            hand.cut()
        for thread in self._threads:
            while thread.is_alive():
                with suppress(queue.Empty):
                    self._answers.get_nowait()  # the thread may wait for a place
                thread.join(0.05)

    def _run(self) -> None:
        try:
            hand = self._begin()
            self._open.append(hand)
            try:
                while not self._is_over and (given := self._next()):
                    self._answers.put([hand.do(given[0])])
            finally:
                hand.close()
        except BaseException as exc:  # noqa: BLE001 - `answers` raises it in the caller's thread
            self._answers.put(exc)
        else:
            self._answers.put(None)

    def _next(self) -> list[G]:
        """The next value in a list; an empty list at the end."""
        with self._taking:
            for given in self._given:
                return [given]
            return []
