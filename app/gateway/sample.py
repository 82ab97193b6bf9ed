"""What a client was sent of one answer, where its service logs samples."""

from dataclasses import dataclass, field

MOST_ANSWER_BYTES = 1 << 20  # more of an answer is cut off


@dataclass
class AnswerSample:
    """Gets all parts in their order."""

    answer: bytearray = field(default_factory=bytearray)
    is_cut: bool = False

    def add(self, content: bytes) -> None:
        room = MOST_ANSWER_BYTES - len(self.answer)
        self.is_cut = self.is_cut or len(content) > room
        self.answer += content[:room]
