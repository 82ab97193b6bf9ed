"""Chat templates: the job's own, the tokenizer's, or ours; in the form that marks what the assistant says.

Ours is for tokenizers that bring none. It needs no special tokens but an end of sequence:

    ### User:
    What is 2 + 2?

    ### Assistant:
    4</s>
"""

import re

import jinja2
from transformers import PreTrainedTokenizerBase

from workers.trainers.failures import InvalidConfig

DEFAULT = (
    "{{ bos_token if bos_token else '' }}"
    "{% for message in messages %}"
    "### {{ message['role'] | capitalize }}:\n"
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + eos_token }}{% endgeneration %}"
    "{% else %}"
    "{{ message['content'] }}"
    "{% endif %}"
    "{{ '\n\n' if not loop.last else '' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '\n\n### Assistant:\n' }}{% endif %}"
)
_MARKS = re.compile(r"\{%-?\s*generation\s*-?%\}")
_FIELD = "data_config.preprocess.chat_template"


def use_own(tokenizer: PreTrainedTokenizerBase, template: str | None) -> None:
    """Give the tokenizer the job's own template, if there is one. Raises InvalidConfig for broken Jinja."""
    if not template:
        return
    tokenizer.chat_template = template
    try:
        tokenizer.apply_chat_template([{"role": "user", "content": "?"}], tokenize=False)
    except jinja2.TemplateSyntaxError as error:
        raise InvalidConfig(f"{_FIELD} is no Jinja template: {error}") from error
    except (jinja2.TemplateError, TypeError, ValueError, KeyError):
        # It may refuse this conversation and take the job's.
        return


def ensure(tokenizer: PreTrainedTokenizerBase) -> None:
    """Give a tokenizer without a chat template ours."""
    if not tokenizer.chat_template:
        tokenizer.chat_template = DEFAULT


def marking(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """The tokenizer's template in a form that marks the assistant's turns; None if there is none."""
    template = tokenizer.chat_template
    if isinstance(template, dict):
        template = template.get("default")
    if not template:
        return None
    return str(template) if _MARKS.search(template) else _known_marking(tokenizer)


def _known_marking(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """The marked form that trl has of a common template."""
    # Loaded only where it is needed: it takes longer than most that is done with a tokenizer.
    from trl.chat_template_utils import get_training_chat_template  # noqa: PLC0415

    try:
        marked: str | None = get_training_chat_template(tokenizer)
    except ValueError:
        return None
    return marked
