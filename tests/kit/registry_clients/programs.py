"""Clients that are small programs in other languages: PROGRAM REGISTRY TOPIC FRAME prints its answers as JSON."""

import json
from dataclasses import dataclass
from pathlib import Path

from tests.kit.clients.program import BuiltProgram, clients_home, python_build
from tests.kit.registry_clients.asking import Answers, NoAnswer, Question

_HERE = Path(__file__).parent

_CARGO = ("--target-dir", str(clients_home() / "caches" / "cargo-target"))  # for all programs


@dataclass(frozen=True, slots=True)
class AskingProgram:
    """A program that is built when it is first asked."""

    name: str
    program: BuiltProgram

    def ask(self, question: Question) -> Answers:
        self.program.prepare()
        run = self.program.run(question.registry, question.topic, question.frame.hex())
        if run.code:
            assert not run.output
            raise NoAnswer(run.errors)
        answers: Answers = json.loads(run.output)
        return answers


def _npm(*command: str) -> tuple[str, ...]:
    return ("npm", *command, "--no-package-lock", "--no-audit", "--no-fund")


PROGRAMS = (
    AskingProgram(
        "Python: confluent-kafka",
        BuiltProgram(_HERE / "python", python_build(), (".venv/bin/python", "ask.py")),
    ),
    AskingProgram(
        "Node: @kafkajs/confluent-schema-registry",
        BuiltProgram(_HERE / "node", (_npm("install"),), ("node", "ask.js")),
    ),
    AskingProgram(
        "Go: franz-go sr",
        BuiltProgram(_HERE / "go", (("go", "build", "-o", "ask", "."),), ("./ask",)),
    ),
    AskingProgram(
        "Rust: schema_registry_converter",
        BuiltProgram(
            _HERE / "rust",
            (("cargo", "install", "--quiet", "--path", ".", "--root", ".", *_CARGO),),
            ("bin/ask",),
        ),
    ),
)
