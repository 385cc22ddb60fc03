//! Runs the steps of a benchmark.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::table::{Benchmark, Step};

/// Runs the steps of a benchmark, up to the first that fails.
///
/// # Errors
/// A tool or a program is missing, or a step cannot be started or fails; the text names it.
pub(crate) fn benchmark(benchmark: &Benchmark, words: &[String]) -> Result<ExitCode, String> {
    let place = Place::find();
    carried_out(place.command(Path::new("tools/need.sh")).args(benchmark.needs))?;
    let mut profiled = None;
    for step in benchmark.steps {
        match step {
            Step::Cargo(arguments) => carried_out(place.cargo().args(*arguments).args(words))?,
            Step::Profiled => {
                carried_out(
                    place.command(Path::new("tools/release.sh")).env("CARGO_TARGET_DIR", &place.target),
                )?;
                profiled = Some(place.target.join("weir"));
            }
            Step::Script => {
                let weir = place.weir("release")?;
                carried_out(place.cargo().args(["build", "-q", "--release", "-p", "weir-bench"]))?;
                let script = format!("bench/{}.sh", benchmark.name);
                let mut command = place.command(Path::new(&script));
                command.arg(profiled.as_ref().unwrap_or(&weir)).arg(place.binary("release", "weir-bench"));
                carried_out(command.args(profiled.is_some().then_some(&weir)).args(words))?;
            }
            Step::Module(profile, first, main) => {
                let (weir, haproxy) = (place.weir(profile)?, haproxy()?);
                more_descriptors();
                let mut all = vec![weir.display().to_string(), haproxy.display().to_string()];
                all.extend(first.iter().map(|word| (*word).to_owned()));
                all.extend_from_slice(words);
                return Ok(main(&all));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The workspace and its target directory.
struct Place {
    workspace: PathBuf,
    target: PathBuf,
}

impl Place {
    fn find() -> Self {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
        // A relative path is relative to the workspace, as in the Makefile.
        Self { target: workspace.join(target), workspace }
    }

    /// Returns a command for a program of the workspace, run in its root.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(self.workspace.join(program));
        command.current_dir(&self.workspace);
        command
    }

    fn cargo(&self) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&self.workspace);
        command
    }

    fn binary(&self, profile: &str, name: &str) -> PathBuf {
        self.target.join(if profile == "dev" { "debug" } else { profile }).join(name)
    }

    /// Returns the binary that `WEIR` names, or builds one with this profile.
    fn weir(&self, profile: &str) -> Result<PathBuf, String> {
        if let Some(named) = std::env::var_os("WEIR") {
            return Ok(named.into());
        }
        carried_out(self.cargo().args(["build", "-q", "--profile", profile, "-p", "weir"]))?;
        Ok(self.binary(profile, "weir"))
    }
}

/// Returns the HAProxy that `HAPROXY` names, or the machine's.
fn haproxy() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("HAPROXY") {
        return Ok(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let mut files = folders.map(|folder| folder.join("haproxy"));
    files.find(|file| file.is_file()).ok_or_else(|| "there is no haproxy: HAPROXY= names one".to_owned())
}

/// Raises the descriptor limit to the maximum that the system allows.
fn more_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

fn carried_out(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().display().to_string();
    let status = command.status().map_err(|error| format!("{name}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name}: {status}")) }
}
