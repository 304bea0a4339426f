from routing.judge.base import Judge, JudgeInput

__all__ = ["Judge", "JudgeInput"]
