"""Parameters of a space as distributions of Optuna.

Values of a list are choices without an order, as `suggest_categorical` has them. Constants are left out.
"""

from optuna.distributions import (
    BaseDistribution,
    CategoricalChoiceType,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from app.domain.sweeps.parameters import Parameter, Value
from app.domain.sweeps.space import Space


def distributions_of(space: Space) -> dict[str, BaseDistribution]:
    return {each.name: distribution_of(each) for each in space.parameters if not each.is_constant}


def distribution_of(parameter: Parameter) -> BaseDistribution:
    size, log = parameter.size, parameter.scale == "log"
    if parameter.values or parameter.low is None or parameter.high is None:
        choices: list[CategoricalChoiceType] = [parameter.at(index) for index in range(size or 0)]
        return CategoricalDistribution(choices)
    # The last value, because Optuna wants an end that is a step.
    high = parameter.high if size is None else float(parameter.at(size - 1))
    if parameter.type == "int":
        return IntDistribution(int(parameter.low), int(high), log=log, step=int(parameter.step or 1))
    return FloatDistribution(parameter.low, high, log=log, step=parameter.step)


def value_of(parameter: Parameter, drawn: Value) -> Value:
    """What Optuna has drawn, as the parameter writes it: 0.1 + 2 × 0.1 is 0.3."""
    if parameter.type == "double" and parameter.step and not parameter.values and parameter.low is not None:
        size = parameter.size or 1
        return parameter.at(min(max(round((float(drawn) - parameter.low) / parameter.step), 0), size - 1))
    return drawn
