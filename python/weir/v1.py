"""All messages and enums of a job, as weir.v1.Train, weir.v1.Table, ...: those of package weir.v1 in proto/."""

from __future__ import annotations

from weir.protos.columns_pb2 import *  # noqa: F403
from weir.protos.metric_pb2 import *  # noqa: F403
from weir.protos.optimizer_pb2 import *  # noqa: F403
from weir.protos.program_pb2 import *  # noqa: F403
from weir.protos.table_pb2 import *  # noqa: F403
from weir.protos.job_pb2 import *  # noqa: F403
