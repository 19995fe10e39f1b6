//! The loops that tasks move their chunks by. Those that stand in a kernel more than once become functions: a long
//! kernel was mostly copies of a few loops, and they took the compiler most of its time. One that stands there once
//! stays where it is.

use std::fmt::Write;

/// The mark before the number of a loop, until it is known how often the loop occurs.
const MARK: &str = "move#";

/// A loop.
struct CopyLoop {
    /// The text of the function after its name.
    function: String,
    /// The text of the loop in a task, not indented.
    code: String,
}

/// The loops of a kernel.
#[derive(Default)]
pub(super) struct CopyLoops(Vec<CopyLoop>);

impl CopyLoops {
    /// Returns the text in the task: a call, given these arguments.
    pub(super) fn call(&mut self, function: String, code: String, given: &str) -> String {
        let known = self.0.iter().position(|one| one.function == function);
        let index = known.unwrap_or_else(|| {
            self.0.push(CopyLoop { function, code });
            self.0.len() - 1
        });
        format!("{MARK}{index}({given});")
    }

    /// Returns the functions, and the kernel that calls them.
    pub(super) fn settle(&self, kernel: &str) -> (String, String) {
        let index = |line: &str| -> Option<usize> {
            line.trim_start().strip_prefix(MARK)?.split_once('(')?.0.parse().ok()
        };
        let mut uses = vec![0; self.0.len()];
        kernel.lines().filter_map(index).for_each(|i| uses[i] += 1);
        let mut names = vec![String::new(); self.0.len()];
        let (mut functions, mut count) = (String::new(), 0);
        for i in (0..self.0.len()).filter(|&i| uses[i] > 1) {
            names[i] = format!("move{count}");
            count += 1;
            let _ = writeln!(
                functions,
                "static __device__ __noinline__ void {}{}",
                names[i], self.0[i].function
            );
        }
        let mut text = String::new();
        for line in kernel.lines() {
            match index(line) {
                Some(i) if uses[i] > 1 => {
                    let _ = writeln!(text, "{}", line.replace(&format!("{MARK}{i}"), &names[i]));
                }
                Some(i) => {
                    let depth = line.len() - line.trim_start().len();
                    for line in self.0[i].code.lines() {
                        let depth = if line.starts_with('#') { 0 } else { depth };
                        let _ = writeln!(text, "{:depth$}{line}", "");
                    }
                }
                None => {
                    let _ = writeln!(text, "{line}");
                }
            }
        }
        (functions, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_occurs_twice_becomes_a_function() {
        let mut moves = CopyLoops::default();
        let mut kernel = String::new();
        for (function, code, given) in [
            ("(a) {\n    x(a);\n}\n", "#p\nx(y);\n", "y"),
            ("(b) {\n    z(b);\n}\n", "z(1);\n", "1"),
            ("(b) {\n    z(b);\n}\n", "z(2);\n", "2"),
        ] {
            let call = moves.call(function.into(), code.into(), given);
            let _ = writeln!(kernel, "    {call}");
        }
        let (functions, text) = moves.settle(&kernel);
        assert_eq!(functions, "static __device__ __noinline__ void move0(b) {\n    z(b);\n}\n\n");
        assert_eq!(text, "#p\n    x(y);\n    move0(1);\n    move0(2);\n");
    }
}
