"""guerdon: rewards as trees of small rubrics, with every number traceable.

Names are imported when they are first used, so that ``import guerdon`` stays light. Everything
else is in its package: `guerdon.credit`, `guerdon.errors`, `guerdon.config`, `guerdon.tracking`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

# The names for type checkers; the table below has the same ones for run time.
# isort: off
# fmt: off
if TYPE_CHECKING:
    from guerdon import credit as credit, errors as errors
    from guerdon.config import (
        RewardConfig as RewardConfig, RewardPipeline as RewardPipeline, open_reward as
        open_reward,
    )
    from guerdon.envs import (
        EnvClient as EnvClient, EnvPool as EnvPool, Environment as Environment, GenericEnvClient
        as GenericEnvClient, HTTPEnvClient as HTTPEnvClient, ToolEnvironment as ToolEnvironment,
        check_environment as check_environment, create_app as create_app, serve as serve, tool as
        tool,
    )
    from guerdon.errors import GuerdonError as GuerdonError, RubricError as RubricError
    from guerdon.rollouts import (
        AgentPolicy as AgentPolicy, OpenAIPolicy as OpenAIPolicy, RLDataAligner as
        RLDataAligner, RLRolloutWorker as RLRolloutWorker, RubricScorer as RubricScorer,
        ScriptedPolicy as ScriptedPolicy, apply_credit as apply_credit, compare_rewards as
        compare_rewards, read_rollouts as read_rollouts, score_rollouts as score_rollouts,
    )
    from guerdon.rubrics import (
        CallBudget as CallBudget, CalledTool as CalledTool, ChoiceAnswer as ChoiceAnswer, Ensemble
        as Ensemble, EvalSandbox as EvalSandbox, ExactMatch as ExactMatch,
        ExponentialDiscountingTrajectoryRubric as ExponentialDiscountingTrajectoryRubric,
        FunctionRubric as FunctionRubric, Gate as Gate, Guarded as Guarded, LLMJudge as LLMJudge,
        LengthBounds as LengthBounds, MathAnswer as MathAnswer, NumericAnswer as NumericAnswer,
        PythonCompiles as PythonCompiles, RegexMatch as RegexMatch,
        RepetitionBounds as RepetitionBounds, RewardFunction as RewardFunction, Rubric as
        Rubric, RubricComposer as RubricComposer, RubricDict as RubricDict, RubricList as
        RubricList, Sequential as Sequential, StateMatches as StateMatches, ToolCost as ToolCost,
        ToolErrors as ToolErrors, ToxicityRubric as ToxicityRubric, TrajectoryRubric as
        TrajectoryRubric,
        ValidJson as ValidJson, WeightedSum as WeightedSum, as_rubric as as_rubric, load_reward
        as load_reward, reward_function as reward_function,
    )
    from guerdon.sandbox import (
        Limits as Limits, Sandbox as Sandbox, check_output as check_output, check_program as
        check_program, open_sandbox as open_sandbox,
    )
    from guerdon.services import MCPClient as MCPClient
    from guerdon.tracking import (
        RewardLogger as RewardLogger, RewardNormalizer as RewardNormalizer,
    )
    from guerdon.types import (
        Action as Action, EvaluateResult as EvaluateResult, Message as Message, MessageAction as
        MessageAction, MessageObservation as MessageObservation, Observation as Observation,
        Rollout as Rollout, Score as Score, State as State, StepData as StepData, StepOutput as
        StepOutput, StepResult as StepResult,
    )
# fmt: on
# isort: on

__version__ = "0.1.0"

__getattr__, __dir__ = lazy_names(
    __name__,
    names={
        "config": "RewardConfig RewardPipeline open_reward",
        "envs": """
            EnvClient EnvPool Environment GenericEnvClient HTTPEnvClient ToolEnvironment
            check_environment create_app serve tool
        """,
        "errors": "GuerdonError RubricError",
        "rollouts": """
            AgentPolicy OpenAIPolicy RLDataAligner RLRolloutWorker RubricScorer ScriptedPolicy
            apply_credit compare_rewards read_rollouts score_rollouts
        """,
        "rubrics": """
            CallBudget CalledTool ChoiceAnswer Ensemble EvalSandbox ExactMatch
            ExponentialDiscountingTrajectoryRubric FunctionRubric Gate Guarded LLMJudge
            LengthBounds MathAnswer NumericAnswer PythonCompiles RegexMatch
            RepetitionBounds RewardFunction Rubric RubricComposer RubricDict RubricList
            Sequential StateMatches ToolCost ToolErrors ToxicityRubric TrajectoryRubric
            ValidJson WeightedSum as_rubric load_reward reward_function
        """,
        "sandbox": "Limits Sandbox check_output check_program open_sandbox",
        "services": "MCPClient",
        "tracking": "RewardLogger RewardNormalizer",
        "types": """
            Action EvaluateResult Message MessageAction MessageObservation Observation Rollout
            Score State StepData StepOutput StepResult
        """,
    },
    packages=("credit", "errors"),
)
