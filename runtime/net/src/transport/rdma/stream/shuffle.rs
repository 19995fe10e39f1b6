//! Completions out of order, for tests.

use crate::transport::rdma::verbs::WorkCompletion;

/// Random numbers from a seed.
#[derive(Debug, Clone)]
pub(crate) struct RandomNumbers(pub(crate) u64);

impl RandomNumbers {
    pub(crate) fn next(&mut self) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(0x9e37_79b9_7f4a_7c15);
        (self.0 >> 33) as usize
    }
}

/// Completions between the devices and a stream: some are held back, and all change places.
#[derive(Debug)]
pub(crate) struct CompletionShuffle {
    pub(crate) random: RandomNumbers,
    pub(crate) held: Vec<(usize, WorkCompletion)>,
    /// The number of times that two changed places.
    pub(crate) swaps: usize,
}

impl CompletionShuffle {
    pub(crate) fn new(seed: u64) -> CompletionShuffle {
        CompletionShuffle { random: RandomNumbers(seed), held: Vec::new(), swaps: 0 }
    }

    pub(crate) fn stir(&mut self, news: &mut Vec<(usize, WorkCompletion)>) {
        news.append(&mut self.held);
        for at in (1..news.len()).rev() {
            let other = self.random.next() % (at + 1);
            self.swaps += usize::from(other != at);
            news.swap(at, other);
        }
        let keep = news.len() - self.random.next() % (news.len() + 1);
        self.held = news.split_off(keep);
    }
}
