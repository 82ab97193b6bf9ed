"""The chat template for tokenizers that bring none.

It needs no special tokens but an end of sequence, and marks the assistant's turns, so that only
they are learned:

    ### User:
    What is 2 + 2?

    ### Assistant:
    4</s>
"""

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
