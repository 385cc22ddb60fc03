//! The task of one checked server: when it is checked, and when not.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use base::clock::now_ms;
use runtime::timer::Timer;
use state::server::{Demand, Operational};

use crate::{Context, Subject, probe, verdict};

/// Checks `subject` for as long as the task lives; the first check comes after `delay`.
pub(crate) async fn watch(subject: Subject, context: Rc<Context>, delay: Duration) {
    prepare(&subject);
    let timer = Timer::new();
    timer.set_after(now_ms(), Some(delay));
    loop {
        pause(&subject, &context, &timer).await;
        let server = &subject.server;
        if is_due(server) {
            server.health.running.store(true, Relaxed);
            let outcome = probe::run(&subject, &context).await;
            server.health.running.store(false, Relaxed);
            // What was learnt while the server went into maintenance counts no more.
            if is_due(server) {
                verdict::apply(&subject, &outcome, &context);
            }
        }
        timer.set_after(now_ms(), Some(spread(interval(&subject), context.spread)));
    }
}

/// Whether a server is checked now: not in maintenance, nor with its checks disabled.
pub(crate) fn is_due(server: &state::Server) -> bool {
    server.checked.load(Relaxed) && !server.admin().in_maintenance()
}

/// Sets what a server starts with. One that was checked before a reload keeps what was found, within the new bounds.
fn prepare(subject: &Subject) {
    let (server, settings) = (&subject.server, &subject.settings);
    let health = &server.health;
    let (rise, fall) = (settings.rise.max(1), settings.fall.max(1));
    let known = !health.last.load().status.is_empty();
    health.configured.store(true, Relaxed);
    health.rise.store(rise, Relaxed);
    health.fall.store(fall, Relaxed);
    let level = match known {
        true if server.operational() == Operational::Stopped => health.level.load(Relaxed).min(rise - 1),
        true => health.level.load(Relaxed).clamp(rise, rise + fall - 1),
        // Up, but the first failure brings it down.
        false if settings.initially_up => rise,
        false => {
            server.set_operational(Operational::Stopped, now_ms());
            0
        }
    };
    health.level.store(level, Relaxed);
}

/// Waits for the time of the next check, meeting what real traffic asks meanwhile.
async fn pause(subject: &Subject, context: &Rc<Context>, timer: &Timer) {
    loop {
        let demand = poll_fn(|task| {
            if timer.poll_expired(task).is_ready() {
                return Poll::Ready(None);
            }
            subject.server.health.poll_demand(task).map(Some)
        });
        let Some(demand) = demand.await else { return };
        verdict::meet(subject, demand, context);
        if demand != Demand::MarkDown {
            let fast = subject.settings.fastinter.unwrap_or(subject.settings.inter);
            timer.set(timer.deadline().min(now_ms() + fast.as_millis() as u64));
        }
    }
}

/// `inter` when steadily up, `downinter` when steadily down, `fastinter` in between.
fn interval(subject: &Subject) -> Duration {
    let (settings, health) = (&subject.settings, &subject.server.health);
    let level = health.level.load(Relaxed);
    let top = health.rise.load(Relaxed) + health.fall.load(Relaxed) - 1;
    if level == top {
        settings.inter
    } else if level == 0 {
        settings.downinter.unwrap_or(settings.inter)
    } else {
        settings.fastinter.unwrap_or(settings.inter)
    }
}

/// Adds or takes off up to `percent` at random (`spread-checks`).
fn spread(interval: Duration, percent: u32) -> Duration {
    if percent == 0 {
        return interval;
    }
    let range = interval.as_millis() as u64 * u64::from(percent.min(50)) / 100;
    let shift = fastrand::u64(0..=range * 2);
    Duration::from_millis((interval.as_millis() as u64 + shift).saturating_sub(range).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreading_stays_within_its_percentage() {
        let second = Duration::from_secs(1);
        assert_eq!(spread(second, 0), second);
        for _ in 0..1000 {
            let spread = spread(second, 20).as_millis();
            assert!((800..=1200).contains(&spread), "{spread}");
        }
    }
}
