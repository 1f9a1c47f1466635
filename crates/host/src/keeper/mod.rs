//! The keeper: the process that outlives every worker, so that no reader ever sees zeros.
