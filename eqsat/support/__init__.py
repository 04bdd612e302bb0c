"""What every room uses: errors, options, nested containers, the disk cache, egglog.

Knows nothing of arrays as terms. Start with ``errors.py``.
"""

from eqsat.support import disk_cache, library_objects, pytree
from eqsat.support.deadline import Deadline, collection_paused, short_turns
from eqsat.support.disk_cache import base_folder, is_on
from eqsat.support.egglog_engine import bindings, version
from eqsat.support.error_interval import WIDE, Array, Ball, Precision, Range
from eqsat.support.errors import (
    LIBRARIES,
    MISFITS,
    ArgumentError,
    AxisBoundsError,
    BackendError,
    BoundsError,
    BudgetWarning,
    DTypeError,
    EngineError,
    EqsatError,
    GraphError,
    MatrixError,
    MemoryLimitError,
    NoElementsError,
    NoResultError,
    OnnxBoundsError,
    OnnxError,
    OptionError,
    OptionWarning,
    Place,
    PromotionError,
    RangeError,
    ReadOnlyError,
    RecompileWarning,
    RuleError,
    RuleFailure,
    RuleWarning,
    SavedProgramError,
    ShapeError,
    SourceLine,
    StaleWarning,
    TraceAttributeError,
    TraceError,
    TraceIndexError,
    TraceValueError,
    VerifyError,
    at,
    caller_line,
    caller_place,
    is_noted,
    is_of_library,
    line_of,
    log_fallback,
    made_elsewhere,
    nearest,
    noted,
    refusals,
    untraceable,
    warn,
)
from eqsat.support.forks import ForkLock, hold_during_fork
from eqsat.support.last_use import LastUse, clock_address, tick
from eqsat.support.lazy_room import lazy_room
from eqsat.support.once import (
    cached_by_identity,
    cached_once,
    cached_property,
    kept_by_first,
    once,
)
from eqsat.support.option_table import (
    KINDS,
    NUMERICS,
    TABLE,
    refuse_unknown,
    setting,
    unknown_variables,
)
from eqsat.support.options import CONTEXTS, OptionContext, Options, current, options
from eqsat.support.overlap import may_overlap
from eqsat.support.progress import (
    phase,
    phases_inside,
    progress,
    seconds_of,
    tell_phase,
)
from eqsat.support.pytree import ArrayAt, TreeNode
from eqsat.support.trusted_files import (
    UntrustedError,
    trusted_folder,
    warn_untrusted,
)
from eqsat.support.user_dirs import device_file, user_folder
from eqsat.support.verification import Broken, refuse, verifying
from eqsat.support.watching import (
    Watch,
    unwatched,
    unwatched_methods,
    watched_call,
)
from eqsat.support.wording import an, as_html, counted
