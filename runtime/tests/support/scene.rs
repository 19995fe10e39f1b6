//! Starts jobs whose ranks are this test binary once more, running one scene.

use std::io::Write;
use std::time::{Duration, Instant};

use roundelay::Error;
use roundelay::launch::{JobOutcome, RankLauncher};
use roundelay_tests::test_arguments;
use rustix::process::{Pid, test_kill_process};

/// The variable with the scene that a rank runs. Where it is not set, the process is no rank.
pub(crate) const SCENE: &str = "TEST_SCENE";

/// Ends this process as a rank, if it is one: it runs the scene, and says what came of it.
pub(crate) fn rank(run: impl FnOnce(&str) -> Result<(), Error>) {
    let Ok(scene) = std::env::var(SCENE) else { return };
    let status = match run(&scene) {
        Ok(()) => 0,
        Err(error) => {
            say(&format!("{} {error}", error.code()));
            3
        }
    };
    std::process::exit(status);
}

/// Prints a line that the test hears.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let text = text.replace('\n', " ");
    writeln!(out, "\n> {text}").and_then(|()| out.flush()).expect("standard output");
}

/// Returns the launcher of a job whose ranks run a scene: the test `rank_process` of the module, given as
/// `module_path!()`, is what calls [`rank`].
pub(crate) fn scene(launcher: RankLauncher, module: &str, scene: &str) -> RankLauncher {
    launcher.args(test_arguments(module, "rank_process")).env(SCENE, scene)
}

/// A job that has ended.
pub(crate) struct Job {
    pub(crate) outcome: JobOutcome,
    /// The lines that each rank printed.
    pub(crate) said: Vec<Vec<String>>,
    pub(crate) took: Duration,
}

impl Job {
    /// Runs a scene to its end. Ranks that began with `pid` and their number are gone then.
    pub(crate) fn run(launcher: RankLauncher) -> Job {
        let began = Instant::now();
        let mut said: Vec<Vec<String>> = Vec::new();
        let outcome = launcher.run(|rank, line| {
            let rank = rank as usize;
            said.resize(said.len().max(rank + 1), Vec::new());
            said[rank].extend(line.strip_prefix("> ").map(str::to_owned));
        });
        let outcome = outcome.expect("a launch");
        said.resize(outcome.endings.len(), Vec::new());
        for pid in said.iter().filter_map(|s| s.first()?.strip_prefix("pid ")?.parse().ok()) {
            let pid = Pid::from_raw(pid).expect("a process");
            assert!(test_kill_process(pid).is_err(), "{pid:?} is left behind");
        }
        Job { outcome, said, took: began.elapsed() }
    }
}
