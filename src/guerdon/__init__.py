"""guerdon: rewards as trees of small rubrics, with every number traceable.

Names are imported when they are first used, so that ``import guerdon`` stays light. Everything
else is in its package: `guerdon.credit`, `guerdon.errors`, `guerdon.config`, `guerdon.tracking`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon import credit as credit
    from guerdon import errors as errors
    from guerdon.config import (
        RewardConfig as RewardConfig,
    )
    from guerdon.config import (
        RewardPipeline as RewardPipeline,
    )
    from guerdon.config import (
        open_reward as open_reward,
    )
    from guerdon.envs import (
        EnvClient as EnvClient,
    )
    from guerdon.envs import (
        Environment as Environment,
    )
    from guerdon.envs import (
        EnvPool as EnvPool,
    )
    from guerdon.envs import (
        GenericEnvClient as GenericEnvClient,
    )
    from guerdon.envs import (
        HTTPEnvClient as HTTPEnvClient,
    )
    from guerdon.envs import (
        check_environment as check_environment,
    )
    from guerdon.envs import (
        create_app as create_app,
    )
    from guerdon.envs import (
        serve as serve,
    )
    from guerdon.errors import (
        GuerdonError as GuerdonError,
    )
    from guerdon.errors import (
        RubricError as RubricError,
    )
    from guerdon.rollouts import (
        AgentPolicy as AgentPolicy,
    )
    from guerdon.rollouts import (
        OpenAIPolicy as OpenAIPolicy,
    )
    from guerdon.rollouts import (
        RLDataAligner as RLDataAligner,
    )
    from guerdon.rollouts import (
        RLRolloutWorker as RLRolloutWorker,
    )
    from guerdon.rollouts import (
        RubricScorer as RubricScorer,
    )
    from guerdon.rollouts import (
        ScriptedPolicy as ScriptedPolicy,
    )
    from guerdon.rollouts import (
        apply_credit as apply_credit,
    )
    from guerdon.rollouts import (
        compare_rewards as compare_rewards,
    )
    from guerdon.rollouts import (
        read_rollouts as read_rollouts,
    )
    from guerdon.rollouts import (
        score_rollouts as score_rollouts,
    )
    from guerdon.rubrics import (
        EvalSandbox as EvalSandbox,
    )
    from guerdon.rubrics import (
        ExactMatch as ExactMatch,
    )
    from guerdon.rubrics import (
        ExponentialDiscountingTrajectoryRubric as ExponentialDiscountingTrajectoryRubric,
    )
    from guerdon.rubrics import (
        FunctionRubric as FunctionRubric,
    )
    from guerdon.rubrics import (
        Gate as Gate,
    )
    from guerdon.rubrics import (
        Guarded as Guarded,
    )
    from guerdon.rubrics import (
        LengthBounds as LengthBounds,
    )
    from guerdon.rubrics import (
        LLMJudge as LLMJudge,
    )
    from guerdon.rubrics import (
        NumericAnswer as NumericAnswer,
    )
    from guerdon.rubrics import (
        PythonCompiles as PythonCompiles,
    )
    from guerdon.rubrics import (
        RegexMatch as RegexMatch,
    )
    from guerdon.rubrics import (
        RepetitionBounds as RepetitionBounds,
    )
    from guerdon.rubrics import (
        RewardFunction as RewardFunction,
    )
    from guerdon.rubrics import (
        Rubric as Rubric,
    )
    from guerdon.rubrics import (
        RubricComposer as RubricComposer,
    )
    from guerdon.rubrics import (
        RubricDict as RubricDict,
    )
    from guerdon.rubrics import (
        RubricList as RubricList,
    )
    from guerdon.rubrics import (
        Sequential as Sequential,
    )
    from guerdon.rubrics import (
        ToxicityRubric as ToxicityRubric,
    )
    from guerdon.rubrics import (
        TrajectoryRubric as TrajectoryRubric,
    )
    from guerdon.rubrics import (
        ValidJson as ValidJson,
    )
    from guerdon.rubrics import (
        WeightedSum as WeightedSum,
    )
    from guerdon.rubrics import (
        as_rubric as as_rubric,
    )
    from guerdon.rubrics import (
        load_reward as load_reward,
    )
    from guerdon.rubrics import (
        reward_function as reward_function,
    )
    from guerdon.sandbox import (
        Limits as Limits,
    )
    from guerdon.sandbox import (
        Sandbox as Sandbox,
    )
    from guerdon.sandbox import (
        check_program as check_program,
    )
    from guerdon.sandbox import (
        open_sandbox as open_sandbox,
    )
    from guerdon.services import (
        MCPClient as MCPClient,
    )
    from guerdon.tracking import (
        RewardLogger as RewardLogger,
    )
    from guerdon.tracking import (
        RewardNormalizer as RewardNormalizer,
    )
    from guerdon.types import (
        Action as Action,
    )
    from guerdon.types import (
        EvaluateResult as EvaluateResult,
    )
    from guerdon.types import (
        Message as Message,
    )
    from guerdon.types import (
        MessageAction as MessageAction,
    )
    from guerdon.types import (
        MessageObservation as MessageObservation,
    )
    from guerdon.types import (
        Observation as Observation,
    )
    from guerdon.types import (
        Rollout as Rollout,
    )
    from guerdon.types import (
        Score as Score,
    )
    from guerdon.types import (
        State as State,
    )
    from guerdon.types import (
        StepData as StepData,
    )
    from guerdon.types import (
        StepOutput as StepOutput,
    )
    from guerdon.types import (
        StepResult as StepResult,
    )

__version__ = "0.1.0"

__getattr__, __dir__ = lazy_names(
    __name__,
    names={
        "config": """
            RewardConfig RewardPipeline open_reward
        """,
        "envs": """
            EnvClient EnvPool Environment GenericEnvClient HTTPEnvClient check_environment
            create_app serve
        """,
        "errors": """
            GuerdonError RubricError
        """,
        "rollouts": """
            AgentPolicy OpenAIPolicy RLDataAligner RLRolloutWorker RubricScorer ScriptedPolicy
            apply_credit compare_rewards read_rollouts score_rollouts
        """,
        "rubrics": """
            EvalSandbox ExactMatch ExponentialDiscountingTrajectoryRubric FunctionRubric Gate
            Guarded LLMJudge LengthBounds NumericAnswer PythonCompiles RegexMatch RepetitionBounds
            RewardFunction Rubric RubricComposer RubricDict RubricList Sequential ToxicityRubric
            TrajectoryRubric ValidJson WeightedSum as_rubric load_reward reward_function
        """,
        "sandbox": """
            Limits Sandbox check_program open_sandbox
        """,
        "services": """
            MCPClient
        """,
        "tracking": """
            RewardLogger RewardNormalizer
        """,
        "types": """
            Action EvaluateResult Message MessageAction MessageObservation Observation Rollout
            Score State StepData StepOutput StepResult
        """,
    },
    packages=("credit", "errors"),
)
