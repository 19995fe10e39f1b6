//! Lists every diagnostic code, one line each. `docs/errors/` has a page for each, and tests run its examples.

/// A stable code such as `RL0501`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(pub &'static str);

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

macro_rules! codes {
    ($($name:ident $code:literal $title:literal;)*) => {
        $(#[doc = $title] pub const $name: ErrorCode = ErrorCode($code);)*
        /// All codes with their titles, in order.
        pub const ALL: &[(ErrorCode, &str)] = &[$((ErrorCode($code), $title)),*];
    };
}

codes! {
    // 01xx: syntax
    SYNTAX "RL0101" "the text does not follow the grammar";
    TOO_LARGE "RL0102" "the text is too large or too deeply nested";
    NOT_TEXT "RL0103" "the file is not text";
    EMPTY "RL0104" "the file declares no algorithm";
    NUMBER "RL0105" "a number is too large";
    // 02xx: names and types
    UNKNOWN_NAME "RL0201" "a name is not declared";
    UNKNOWN_COLLECTIVE "RL0202" "no such collective";
    UNKNOWN_ALGORITHM "RL0203" "no such algorithm";
    DUPLICATE_NAME "RL0204" "a name is declared twice";
    RECURSION "RL0205" "a function or an algorithm uses itself";
    TYPE "RL0206" "a number stands where a truth value belongs, or the other way round";
    ARITY "RL0207" "a function is called with the wrong number of arguments";
    MISPLACED "RL0208" "a statement or clause stands where it has no meaning";
    BAD_SCHEDULE "RL0209" "a schedule entry is unknown or out of range";
    IMPORT "RL0210" "an import cannot be followed";
    BUFFERS "RL0211" "an algorithm mixes data with input and output";
    UNKNOWN_WIRE "RL0212" "no such wire type";
    WEIGHTED "RL0213" "a split by bandwidth stands where it cannot be balanced";
    SHADOWED "RL0214" "a let in a loop hides another";
    ARGUMENT "RL0215" "an argument is none that the algorithm takes";
    // 03xx: matching and deadlock
    DEADLOCK "RL0301" "the schedule can deadlock";
    SLOTS "RL0302" "more messages are in flight than a connection can hold";
    // 04xx: bounds, races, initialised reads
    INDEX "RL0401" "a chunk index is out of bounds";
    RANK "RL0402" "a rank is out of bounds";
    TWO_WRITES "RL0403" "two writes to one place in one each";
    UNINITIALISED "RL0404" "a place is read before anything was stored there";
    OVERLAP "RL0405" "a chunk set holds the same chunk twice, or overlaps another in part";
    LENGTHS "RL0406" "two regions of one transfer differ in length";
    SIZES "RL0407" "chunks that may differ in bytes are copied onto each other";
    RACE "RL0408" "two accesses to one place are not ordered";
    ARITHMETIC "RL0409" "arithmetic without a result";
    // 05xx: the result
    MISSING "RL0501" "a contribution is missing";
    DUPLICATE "RL0502" "a contribution is counted twice";
    WRONG_VALUE "RL0503" "a place ends with something it should not hold";
    MIXED "RL0504" "chunks of different index are reduced into one";
    ASKED_TWICE "RL0505" "a collective asks twice of one place";
    WASTED "RL0506" "a transfer moves what no result needs";
    DISAGREE "RL0507" "the survivors of a failure do not agree";
    ORDER "RL0508" "ranks are added out of their order";
    // 06xx: the shape at hand
    REQUIRES "RL0601" "the rank count is not one that the algorithm allows";
    SHAPE "RL0602" "the ranks given do not fit the algorithm";
    TOO_BIG "RL0603" "the algorithm would have to be unrolled beyond the limit";
    CHUNKS "RL0604" "the chunk count does not fit the collective";
    ROOT "RL0605" "the root is not a rank";
    PATH "RL0606" "a path is not one that there is";
    FAILURES "RL0607" "the failures that an algorithm tolerates cannot be proved";
    // 07xx: plans and runs
    PLAN_DAMAGED "RL0701" "a plan is damaged or of another version";
    PLAN_MISMATCH "RL0702" "ranks hold different plans";
    TIMEOUT "RL0703" "a wait passed its deadline";
    LOST_RANK "RL0704" "a rank is gone";
    MEMORY "RL0705" "shared memory could not be had";
    UNSUPPORTED "RL0706" "a valid call that this algorithm, device or build does not support";
    WRONG_RESULT "RL0707" "a run gave a wrong result";
    FILE "RL0708" "a file cannot be read";
    START "RL0709" "the ranks could not come together";
    CUDA "RL0710" "CUDA cannot be used, or failed";
    WRITE "RL0711" "a file cannot be written";
    USAGE "RL0712" "the arguments of a call are wrong";
    SETTINGS "RL0713" "a hint, the tuned table or the topology file is wrong";
    WORK "RL0714" "started work panicked, or lost its thread";
    ABORTED "RL0715" "the program ended the communicator";
    WINDOW "RL0716" "a window does not allow an access";
    WINDOW_OVER "RL0717" "a window was used after its end";
    FORKED "RL0718" "a forked process used what its parent made";
}

/// Returns the code and title of that text (`RL0501`, case-insensitive).
pub fn find(text: &str) -> Option<(ErrorCode, &'static str)> {
    ALL.iter().copied().find(|(c, _)| c.0.eq_ignore_ascii_case(text))
}
