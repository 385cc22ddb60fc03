//! Drops privileges once the sockets are bound: the file system (`chroot`), the group and user, and all capabilities except those
//! of `setcap` (configuration manual, chapter 3.1; management manual, chapter 13.1). Done before other threads are started.

use std::path::Path;

use diag::Severity;
use plan::Plan;
use plan::server::{SourceAddress, UseSource};
use plan::{Capability, Chroot, Global};
use rules::RuleSet;
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_keep_capabilities, set_no_new_privs,
};

use crate::messages::MessageFormat;

/// Applies `chroot`, `group` and `user`, in this order, because each needs privileges that the next one drops.
///
/// # Errors
/// The system refuses, or the configuration needs privileges that the process would lose.
pub(crate) fn confine(plan: &Plan, messages: MessageFormat) -> Result<(), String> {
    let global = &plan.global;
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        warn_of_roots_rights(global, messages);
    }
    // The local time zone is loaded once from the system's files, which are invisible after chroot.
    base::clock::local_offset(0);
    match &global.chroot {
        Some(Chroot::Directory(root)) => change_root(root, is_root)?,
        Some(Chroot::Auto) => change_root(&nowhere()?, is_root)?,
        None => {}
    }
    let leaves_root = is_root && global.uid.is_some_and(|uid| uid != 0);
    if leaves_root && let Some(need) = unmet(plan) {
        return Err(format!(
            "[haproxy.main()] Some configuration options require full privileges, so global.uid cannot be changed: {need}."
        ));
    }
    give_up(global, leaves_root).map_err(|error| format!("[haproxy.main()] Cannot set uid/gid: {error}."))?;
    if !global.insecure_setuid_wanted {
        // From here on, no program gains privileges through its file mode, not even a program that an attacker makes this process
        // run.
        set_no_new_privs(true)
            .map_err(|error| format!("[haproxy.main()] Cannot forbid new privileges: {error}."))?;
    }
    if global.set_dumpable {
        // Dropping privileges clears the dumpable flag.
        use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
        let unlimited = Rlimit { current: None, maximum: None };
        let _ = setrlimit(Resource::Core, unlimited);
        set_dumpable_behavior(DumpableBehavior::Dumpable)
            .map_err(|error| format!("[haproxy.main()] Cannot allow core dumps: {error}."))?;
    }
    Ok(())
}

/// Prints the manual's warnings for processes that start as root and keep its privileges.
fn warn_of_roots_rights(global: &Global, messages: MessageFormat) {
    if global.chroot.is_none() {
        messages.say(
            Severity::Warning,
            "[haproxy.main()] started as root without `chroot`: an attacker who gains control of the \
             process can access all files. Use `chroot auto` in the global section for an empty directory, \
             or `chroot /` to silence this warning.",
        );
    }
    if global.uid.is_none() {
        messages.say(
            Severity::Warning,
            "[haproxy.main()] started as root without `user` or `uid`: the process keeps all root \
             privileges. Set a user in the global section, with `setcap` for the required capabilities, or \
             `uid 0` to silence this warning.",
        );
    }
}

/// Returns an empty directory that nobody can reach. The directory is removed while it is the current one.
fn nowhere() -> Result<std::path::PathBuf, String> {
    let shown = |error: std::io::Error| format!("[haproxy.main()] Cannot chroot(auto): {error}.");
    for attempt in 0..100 {
        let name = format!("weir.{}.{attempt}", std::process::id());
        let path = std::env::temp_dir().join(name);
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
            made => made.map_err(shown)?,
        }
        // Not even the directory's owner can create anything in it.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o555);
        std::fs::set_permissions(&path, mode).map_err(shown)?;
        std::env::set_current_dir(&path).map_err(shown)?;
        std::fs::remove_dir(&path).map_err(shown)?;
        return Ok(".".into());
    }
    Err(shown(std::io::ErrorKind::AlreadyExists.into()))
}

/// Changes the root directory. A process without the privilege for that changes it in a new user namespace.
fn change_root(root: &Path, is_root: bool) -> Result<(), String> {
    let shown = root.display();
    let refused = |error: std::io::Error| format!("[haproxy.main()] Cannot chroot({shown}): {error}.");
    // If namespaces are forbidden, chroot(2) reports an error.
    if !is_root {
        let _ = process::enter_user_namespace();
    }
    rustix::process::chroot(root).map_err(|error| refused(error.into()))?;
    std::env::set_current_dir("/").map_err(refused)
}

/// Switches to the configured group and user, keeping only the capabilities of `setcap`.
fn give_up(global: &Global, leaves_root: bool) -> std::io::Result<()> {
    let kept = global.capabilities.iter().map(|capability| of_kernel(*capability)).collect::<CapabilitySet>();
    let keeps = leaves_root && !kept.is_empty();
    if keeps {
        set_keep_capabilities(true)?;
    }
    process::drop_privileges(global.uid, global.gid)?;
    if keeps {
        let inheritable = CapabilitySet::empty();
        set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })?;
        set_keep_capabilities(false)?;
    } else if !kept.is_empty() && !rustix::process::geteuid().is_root() {
        // Capabilities granted by the program's file are raised. Having none is not an error.
        let _ = raise(kept);
    }
    Ok(())
}

/// Makes the `wanted` capabilities effective, if the process is permitted to have them.
fn raise(wanted: CapabilitySet) -> Result<(), Errno> {
    let mut sets = capabilities(None)?;
    sets.effective |= wanted & sets.permitted;
    set_capabilities(None, sets)
}

fn of_kernel(capability: Capability) -> CapabilitySet {
    match capability {
        Capability::NetRaw => CapabilitySet::NET_RAW,
        Capability::NetAdmin => CapabilitySet::NET_ADMIN,
        Capability::NetBindService => CapabilitySet::NET_BIND_SERVICE,
        Capability::SysAdmin => CapabilitySet::SYS_ADMIN,
    }
}

/// Returns a setting that needs a privilege which the process would not have as another user, and that privilege, or `None` if no
/// setting does.
fn unmet(plan: &Plan) -> Option<String> {
    let has = |any: &[Capability]| any.iter().any(|one| plan.global.capabilities.contains(one));
    let network = has(&[Capability::NetRaw, Capability::NetAdmin]);
    for proxy in plan.proxies.iter() {
        let name = &proxy.state.name;
        let any = |test: fn(&SourceAddress) -> bool| {
            proxy.source.as_deref().is_some_and(test)
                || proxy.servers.iter().any(|server| server.source.as_deref().is_some_and(test))
        };
        let needs = [
            ("usesrc", any(|source| source.transparent != UseSource::No)),
            ("source … interface", any(|source| source.interface.is_some())),
            ("set-mark", proxy.rule_sets().into_iter().any(RuleSet::sets_marks)),
        ];
        if let Some((what, _)) = needs.iter().find(|(_, needed)| *needed && !network) {
            return Some(format!(
                "`{what}` in `{name}` needs `setcap cap_net_raw` or `setcap cap_net_admin`"
            ));
        }
        let elsewhere = proxy.servers.iter().any(|server| server.namespace.is_some());
        if elsewhere && !has(&[Capability::SysAdmin]) {
            return Some(format!("`namespace` of a server in `{name}` needs `setcap cap_sys_admin`"));
        }
    }
    None
}
