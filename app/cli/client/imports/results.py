"""When is evaluated, and which checkpoints are kept, by the names of transformers, which both tools take."""

from app.cli.client.imports.draft import Draft


def evaluate(draft: Draft) -> None:
    keys = draft.keys
    key = "eval_strategy" if keys.has("eval_strategy") else "evaluation_strategy"
    strategy, every = keys.take(key), keys.peek("eval_steps")
    if not draft.evaluates:
        keys.take("eval_steps")  # nothing is held out to evaluate on
    elif strategy in ("epoch", "no"):
        draft.evaluation = {"strategy": strategy}
    elif isinstance(every, int) and every > 0:
        draft.evaluation = {"strategy": "steps", "steps": keys.take("eval_steps")}


def choose_best(draft: Draft) -> None:
    keys, checkpoint = draft.keys, draft.checkpoint
    if limit := keys.take("save_total_limit"):
        checkpoint["save_total_limit"] = int(limit)
    if metric := keys.take("metric_for_best_model"):
        checkpoint["metric_for_best_model"] = str(metric)
    if keys.has("greater_is_better"):
        checkpoint["greater_is_better"] = keys.flag("greater_is_better")
