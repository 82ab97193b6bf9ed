"""Hyperparameters of RLHF, and the forms of `reward`."""

from collections.abc import Mapping
from dataclasses import replace

from app.domain.spec.hyperparameters.parameter import Hyperparameter, InvalidHyperparameter, Value

ALGORITHM = "algorithm"
GRPO, RLOO, PPO, REWARD_MODELLING = "grpo", "rloo", "ppo", "reward"
POLICIES = (GRPO, RLOO, PPO)
ALGORITHMS = (*POLICIES, REWARD_MODELLING)
# Method name of reward modelling, whose records and metrics are not those of a policy.
REWARD_METHOD = f"RLHF with {ALGORITHM} {REWARD_MODELLING}"

GENERATION_BACKEND = "generation_backend"
GENERATE, ENGINE = "generate", "engine"
REWARD = "reward"
REWARD_MODEL = "reward_model_id"
LENGTH, REGEX, EXACT, FILE = "length", "regex", "exact", "file"
ANSWER = "answer"  # the column that `exact` compares with, unless it names another
_WAYS = (
    f"{LENGTH}:<tokens>, {REGEX}:<pattern>, {EXACT} or {EXACT}:<column>, or the path of a Python file with "
    "reward(prompts, completions, **columns)"
)
_MOST_NAMED = 12

_ALGORITHM = Hyperparameter(
    ALGORITHM,
    "choice",
    GRPO,
    "How the policy is improved: against the mean of a prompt's completions (grpo) or of the others of them (rloo), or "
    "against what a critic expects of each token (ppo, one device, HF_TRAINER); "
    "reward: no policy, but the model that judges its completions",
    choices=ALGORITHMS,
)
_OF_POLICIES = (
    Hyperparameter(REWARD, "text", EXACT, f"What a completion is worth: {_WAYS}"),
    Hyperparameter(
        REWARD_MODEL,
        "text",
        "",
        "A model that says it instead of reward: the ID of a job that trained one, a directory, a URI or an id of the "
        "hub; one number for each text",
    ),
    Hyperparameter(
        "num_generations",
        "int",
        8,
        "Completions of each prompt, which are compared with each other; divides the records of a step",
        2,
        4096,
    ),
    Hyperparameter(
        "max_prompt_length",
        "int",
        0,
        "Longer prompts are left out; in tokens; 0 = what max_completion_length leaves of max_seq_length",
        0,
    ),
    Hyperparameter("max_completion_length", "int", 256, "Where a completion is cut off, in tokens", 1),
    Hyperparameter("temperature", "float", 1.0, "Completions are drawn from logits divided by it", 0.01, 100.0),
    Hyperparameter(
        "top_p", "float", 1.0, "Only from the likeliest tokens that have this probability together", 0.01, 1.0
    ),
    Hyperparameter("top_k", "int", 0, "Only from this many of the likeliest tokens; 0 = from all", 0),
    Hyperparameter(
        "beta",
        "float",
        0.04,
        "What moving away from the base model costs (KL); 0 = nothing, and it is not kept",
        0.0,
        100.0,
    ),
    Hyperparameter(
        "loss_type",
        "choice",
        "dapo",
        "How losses of tokens are averaged: over the step (dapo), the batch (bnpo), each completion (grpo), or by "
        "max_completion_length (dr_grpo)",
        choices=("dapo", "grpo", "bnpo", "dr_grpo"),
        only_with=(ALGORITHM, (GRPO,)),
    ),
    Hyperparameter(
        "scale_rewards",
        "choice",
        "group",
        "Advantages are divided by the standard deviation of rewards: of the prompt's, of the whole step's, or not",
        choices=("group", "batch", "none"),
        only_with=(ALGORITHM, (GRPO,)),
    ),
    Hyperparameter(
        "normalize_advantages",
        "bool",
        False,
        "Advantages of a step get mean 0 and standard deviation 1",
        only_with=(ALGORITHM, (RLOO,)),
    ),
    Hyperparameter("mask_truncated_completions", "bool", False, "Learn nothing from completions that were cut off"),
    Hyperparameter(
        GENERATION_BACKEND,
        "choice",
        GENERATE,
        "What makes completions: generate of transformers, in padded batches; or the engine of inference jobs, with a "
        "seed for each completion, which a role with program rollout needs",
        choices=(GENERATE, ENGINE),
        only_with=(ALGORITHM, (GRPO, RLOO)),
    ),
)
_OF_PPO = (
    Hyperparameter("num_ppo_epochs", "int", 4, "Number of updates from the same completions", 1, 1000),
    Hyperparameter(
        "num_mini_batches",
        "int",
        1,
        "Steps that learn from all completions once: these are so many times a step's",
        1,
        1000,
    ),
    Hyperparameter(
        "cliprange", "float", 0.2, "A token's probability counts no further than this share from what it was", 0.0, 1.0
    ),
    Hyperparameter("cliprange_value", "float", 0.2, "How far what the critic expects may move at once", 0.0, 1e6),
    Hyperparameter("vf_coef", "float", 0.1, "How much the critic's loss counts beside the policy's", 0.0, 1e6),
    Hyperparameter("gamma", "float", 1.0, "What the next token's worth counts before it", 0.0, 1.0),
    Hyperparameter(
        "lam",
        "float",
        0.95,
        "Advantages: 0 by what the critic expects next, 1 by what came of the completion",
        0.0,
        1.0,
    ),
)
_OF_REWARD_MODELS = (
    Hyperparameter(
        "center_rewards_coefficient",
        "float",
        0.0,
        "What the squared sum of a pair's rewards costs, so that rewards lie around 0; 0 = nothing; 0.01 is usual",
        0.0,
        100.0,
        only_with=(ALGORITHM, (REWARD_MODELLING,)),
    ),
)


def _only_with_policies(item: Hyperparameter) -> Hyperparameter:
    return replace(item, only_with=item.only_with or (ALGORITHM, POLICIES))


ROWS = (
    _ALGORITHM,
    *map(_only_with_policies, _OF_POLICIES),
    *(replace(item, only_with=(ALGORITHM, (PPO,))) for item in _OF_PPO),
    *_OF_REWARD_MODELS,
)
# For sharded models: PPO's critic and stored completions belong to one rank. The engine needs a whole model, which
# they can hand over to rollouts.
ROWS_OF_SHARDS = (
    replace(_ALGORITHM, choices=tuple(each for each in ALGORITHMS if each != PPO)),
    *(item for item in ROWS[1:] if item.only_with != (ALGORITHM, (PPO,))),
)


def method_of(training_type: str, values: Mapping[str, Value]) -> str:
    """The training type, or REWARD_METHOD for reward modelling; ``values`` parsed or as submitted."""
    judges = training_type == "RLHF" and str(values.get(ALGORITHM) or "").strip() == REWARD_MODELLING
    return REWARD_METHOD if judges else training_type


def completes(values: Mapping[str, Value]) -> bool:
    """Whether parsed values train a policy, which completes prompts."""
    return values.get(ALGORITHM) in POLICIES


def reward_kind(text: str) -> tuple[str, str]:
    """Kind of reward and its argument: tokens, a pattern, a column, or a path."""
    kind, _, rest = text.partition(":")
    if kind == EXACT:
        return EXACT, rest or ANSWER
    return (kind, rest) if kind in (LENGTH, REGEX) else (FILE, text)


def reward_file(values: Mapping[str, Value]) -> str:
    """Path of the user's reward file, from parsed values or as submitted; empty when there is none."""
    kind, rest = reward_kind(str(values.get(REWARD) or "").strip())
    return rest if kind == FILE else ""


def reward_model(values: Mapping[str, Value]) -> str:
    """The reward model, from parsed values or as submitted; empty when there is none."""
    return str(values.get(REWARD_MODEL) or "").strip()


def check(values: Mapping[str, Value]) -> None:
    """Check combinations of RLHF values; applies to policies only. Raises InvalidHyperparameter."""
    if not completes(values):
        return
    text = str(values[REWARD])
    if values[REWARD_MODEL]:
        if text != EXACT:
            raise InvalidHyperparameter(
                REWARD, f"{REWARD} has no effect with {REWARD_MODEL}, which judges by itself; leave one of them out"
            )
        return
    if not text:
        raise InvalidHyperparameter(REWARD, f"{REWARD} must say what a completion is worth: {_WAYS}")
    kind, rest = reward_kind(text)
    if kind == LENGTH and not (rest.isdecimal() and 0 < int(rest) <= 2**31):
        raise InvalidHyperparameter(
            REWARD, f"{REWARD} {text[:64]}: say how many tokens a completion is to have, as in {LENGTH}:64"
        )
    if kind == FILE and not rest.endswith(".py"):
        raise InvalidHyperparameter(REWARD, f"{REWARD} {text[:64]!r} is none of {_WAYS}, whose name ends in .py")


def check_devices(values: Mapping[str, Value], devices: int) -> None:
    """PPO runs in one process. Raises InvalidHyperparameter; accepts values of any method."""
    if values.get(ALGORITHM) == PPO and devices > 1:
        raise InvalidHyperparameter(
            ALGORITHM,
            f"{ALGORITHM} {PPO} trains on one device, not on {devices}: ask for gpu_count 1 and node_count 1, or "
            f"choose {GRPO} or {RLOO}",
        )


def check_batch(values: Mapping[str, Value], records_per_step: int) -> None:
    """A step must hold all completions of its prompts. Raises InvalidHyperparameter; accepts values of any method."""
    count = int(values["num_generations"]) if completes(values) else 1
    if records_per_step % count == 0:
        return
    fitting = [str(n) for n in range(2, records_per_step + 1) if records_per_step % n == 0][:_MOST_NAMED]
    set_to = f"set num_generations to {' or '.join(fitting)}, or " if fitting else ""
    raise InvalidHyperparameter(
        "num_generations",
        f"num_generations {count} does not divide the {records_per_step} completions of a step (batch_size × "
        f"gradient_accumulation_steps × devices): {set_to}make those a multiple of {count}",
    )


def check_lengths(values: Mapping[str, Value], max_seq_length: int) -> None:
    """Prompt and completion share one sequence; applies to policies only. Raises InvalidHyperparameter."""
    if not completes(values):
        return
    prompt, completion = int(values["max_prompt_length"]), int(values["max_completion_length"])
    if completion + max(prompt, 1) > max_seq_length:
        name = "max_prompt_length" if completion < max_seq_length else "max_completion_length"
        raise InvalidHyperparameter(
            name,
            f"max_prompt_length {prompt} and max_completion_length {completion} are more than max_seq_length "
            f"{max_seq_length}, which both have to share: lower one of them or raise data_config.max_seq_length",
        )


def longest_prompt(values: Mapping[str, Value], max_seq_length: int) -> int:
    """Maximum length of a prompt in tokens."""
    return int(values["max_prompt_length"]) or max_seq_length - int(values["max_completion_length"])
