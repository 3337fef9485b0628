//! Problems that recur: the log names each when it begins, and then once a minute.

use std::time::Duration;

use tokio::time::Instant;

/// Interval between two log lines about one problem.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// A recurring problem, which is logged when it begins and once a minute while it lasts.
#[derive(Debug, Default)]
pub(crate) struct RecurringProblem {
    logged: Option<Instant>,
    times: u64,
}

impl RecurringProblem {
    /// Counts one occurrence. Returns the number so far if it should be logged now.
    pub(crate) fn occurred(&mut self) -> Option<u64> {
        self.times += 1;
        let now = Instant::now();
        if self.logged.is_some_and(|logged| now.duration_since(logged) < LOG_INTERVAL) {
            return None;
        }
        self.logged = Some(now);
        Some(self.times)
    }

    /// Records that the problem is absent. Returns the number of occurrences if its end should be logged. The
    /// end is logged only a minute after the problem was last logged, since the problem may come and go.
    pub(crate) fn ended(&mut self) -> Option<u64> {
        let quiet = self.logged.is_some_and(|logged| logged.elapsed() >= LOG_INTERVAL);
        quiet.then(|| {
            self.logged = None;
            std::mem::take(&mut self.times)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_problem_that_comes_and_goes_is_logged_once_a_minute() {
        let mut problem = RecurringProblem::default();
        assert_eq!(problem.ended(), None);
        let mut logged = Vec::new();
        for second in 0..150 {
            logged.extend(problem.occurred().map(|times| (second, times)));
            assert_eq!(problem.ended(), None, "{second}");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(logged, [(0, 1), (60, 61), (120, 121)]);
        tokio::time::advance(LOG_INTERVAL).await;
        assert_eq!(problem.ended(), Some(150));
        assert_eq!((problem.ended(), problem.occurred()), (None, Some(1)));
    }
}
