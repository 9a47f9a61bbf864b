"""The small set of protocols and data that the parts of a test share.

Why one package: workloads, nemeses and environments must work together without knowing each other.
So each can be replaced alone (a new environment must not touch a workload). They import this
package and nothing else of the harness; the harness imports them. The data that crosses between
them can be written as JSON.

Units are in names: ``_s`` seconds (float), ``_ns`` nanoseconds since the start of the test (int),
``_ms`` milliseconds.
"""

from checkers.schema import TEMPORARY as TEMPORARY
from checkers.schema import TOPIC as TOPIC  # workloads use it through the interface
from harness.interface.dialect import Dialect, QueueCommands, Temporaries, Topics, Wishes
from harness.interface.environment import (
    DataEdit,
    Effect,
    Environment,
    Observer,
    Selective,
    T,
    Telling,
    WithServices,
)
from harness.interface.errors import CommandRefusedError, InfrastructureError, UsageError
from harness.interface.in_process import Disk, DiskCondition, DiskDamage, InProcess, InProcessResources
from harness.interface.nemesis import Events, NemesisContext
from harness.interface.network import Address, Link
from harness.interface.plan import DATABASE, DatabasePlan, NodePlan, StorePlan
from harness.interface.recorder import Recorder
from harness.interface.schedule import Fault, Schedule
from harness.interface.spec import FIELDS, IMPORTED, NO_MASTER, OWN, BroughtHistory, TestSpec
from harness.interface.status import BACKUP, LIVE, SUSPENDED, Server, Status, Takeover
from harness.interface.system import (
    Cautioning,
    Chaining,
    ChangeRecording,
    Event,
    Fetched,
    Installed,
    Keeping,
    Lack,
    Layout,
    Looked,
    Mirrored,
    Mirroring,
    Nameless,
    Paging,
    Patience,
    PolicySummary,
    Portable,
    Prepared,
    Provision,
    Recorded,
    Released,
    Runtime,
    Secretive,
    Steered,
    StoredMessage,
    System,
    Viewed,
)
from harness.interface.workload import Workload, WorkloadContext
from stomp_protocol.client.feed import FedNode as FedNode
from stomp_protocol.client.feed import Feed as Feed
