//! Resolves only the sections that a new version of the files changes. The result is the plan that resolving everything would
//! create, but its cost depends on the size of the change.
//!
//! This is possible if all changed sections are backends with settings that affect nothing else ([`simple`]), and if nothing that
//! other sections depend on has changed: the names and the order of the sections, the lines before them, and all other files that
//! the configuration names. In all other cases, and if there is anything to report, the caller must resolve everything.

mod assemble;
mod sections;
mod simple;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::seen_files::SeenFiles;
use diag::{Diagnostics, FileId, SourceMap};
use plan::source_text::{PlacedSection, SectionedFile, SectionedFiles};
use plan::{Plan, Proxy, ProxyIndex};

use crate::draft::{Draft, SectionKind};
use crate::resolve::runtime_defaults::source_sections;
use crate::resolve::runtime_scope::Around;
use crate::{Boot, Setting, read, resolve};

/// Divides the files of a configuration, or returns `None` if a change always requires that everything is resolved.
pub(crate) fn divide(
    draft: &Draft,
    sources: &SourceMap,
    plan: &Plan,
    others: SeenFiles,
) -> Option<SectionedFiles> {
    if !simple::is_divisible(draft, plan) {
        return None;
    }
    let mut own = draft.sections.iter().peekable();
    let mut files = Vec::new();
    for (id, file) in sources.files() {
        let sections = sections::starts(file.text())?;
        let mut file = SectionedFile { name: file.name().into(), text: file.text().into(), sections };
        for index in 0..file.sections.len() {
            let line = file.sections[index].line;
            let section = own.next_if(|section| section.file == id && section.line == line)?;
            file.sections[index].is_separate =
                !has_variables(file.text_of(index)) && simple::is_separate(section);
        }
        files.push(file);
    }
    own.peek().is_none().then(|| SectionedFiles { files, others: Arc::new(others) })
}

/// The changed sections of a new version of the files.
#[derive(Debug)]
pub struct ChangedSections {
    files: Vec<SectionedFile>,
    /// The changed sections: their indexes in [`Plan::source`], and their proxies.
    changed: Vec<(usize, ProxyIndex)>,
    /// The new text of these sections, and of all sections from which they can inherit.
    sources: SourceMap,
}

impl ChangedSections {
    /// Finds the sections that differ from those of `plan`. Returns `None` if everything must be resolved.
    pub fn find(sources: &SourceMap, files: &[FileId], plan: &Plan) -> Option<Self> {
        let known = plan.sectioned.as_ref()?;
        let is_same_set = known.files.len() == files.len()
            && known.files.iter().zip(files).all(|(known, id)| *known.name == *sources.file(*id).name());
        if !is_same_set || plan.backends.is_changed() || plan.proxies.iter_added().next().is_some() {
            return None;
        }
        let mut found = Self { files: Vec::new(), changed: Vec::new(), sources: SourceMap::new() };
        let mut before = 0;
        for (old, id) in known.files.iter().zip(files) {
            found.compare(old, sources.file(*id).text(), before, plan)?;
            before += old.sections.len();
        }
        known.others.are_unchanged().then_some(found)
    }

    /// Compares a file. `before` is the number of sections in earlier files.
    fn compare(&mut self, old: &SectionedFile, text: &[u8], before: usize, plan: &Plan) -> Option<()> {
        let mut new = old.clone();
        if *text != *old.text {
            (new.text, new.sections) = (text.into(), sections::starts(text)?);
        }
        if new.sections.len() != old.sections.len() {
            return None;
        }
        let mut excerpt = Vec::new();
        for index in 0..old.sections.len() {
            let own = old.sections[index];
            let is_changed = new.text_of(index) != old.text_of(index);
            new.sections[index].is_separate = own.is_separate;
            let place = before + index;
            if is_changed {
                if !own.is_separate || has_variables(new.text_of(index)) {
                    return None;
                }
                self.changed.push((place, plan.backends.get(&plan.source[place].name)?));
            } else if new.sections[index].line != own.line && !own.is_separate {
                // Rules and bind lines know the numbers of their lines.
                return None;
            }
            let is_inherited = !own.is_separate && &*plan.source[place].kind == "defaults";
            if is_inherited && has_variables(new.text_of(index)) {
                return None;
            }
            if is_changed || is_inherited {
                excerpt.extend_from_slice(new.text_of(index));
            }
        }
        // Lines before the first section.
        if head(&new) != head(old) {
            return None;
        }
        self.sources.add(&*old.name, excerpt);
        self.files.push(new);
        Some(())
    }

    /// The indexes of the changed sections in [`Plan::source`].
    pub fn indexes(&self) -> impl Iterator<Item = usize> {
        self.changed.iter().map(|(place, _)| *place)
    }

    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty()
    }

    /// Resolves the changed sections, without an effect on the plan in use, and returns their new text. Returns `None` if everything
    /// must be resolved, for example because there is a message to report.
    pub fn check(&self, boot: &Boot, plan: &Plan) -> Option<Vec<PlacedSection>> {
        let draft = self.draft(boot, plan)?;
        let own = self.resolve(&draft, &boot.setting, plan, None)?;
        let mut own = self.changed.iter().zip(own.proxies.iter());
        let is_possible = own.all(|((_, at), own)| may_replace(&plan.proxies[*at], own));
        is_possible.then(|| self.sections(&draft).collect())
    }

    /// Resolves the changed sections to a plan that replaces `plan`, which is in use. Must follow a successful
    /// [`check`](Self::check), because changes affect the state of servers immediately.
    pub fn apply(self, boot: &Boot, plan: &Plan) -> Option<Plan> {
        let draft = self.draft(boot, plan)?;
        // Resolving assumes that all references to a proxy are made again.
        let referenced = |at: &ProxyIndex| plan.proxies[*at].state.referenced.load(Relaxed);
        let referenced: Vec<bool> = self.changed.iter().map(|(_, at)| referenced(at)).collect();
        let own = self.resolve(&draft, &boot.setting, plan, Some(plan))?;
        for ((_, at), was) in self.changed.iter().zip(referenced) {
            plan.proxies[*at].state.referenced.store(was, Relaxed);
        }
        Some(assemble::plan(&self, plan, &draft, own))
    }

    /// Parses the changed sections and those from which they inherit.
    fn draft(&self, boot: &Boot, plan: &Plan) -> Option<Draft> {
        let mut diagnostics = Diagnostics::new();
        let files = self.sources.files().map(|(id, _)| id).collect();
        let environment = boot.environment.clone();
        let draft = read::read(&self.sources, files, &boot.facts, environment, &mut diagnostics);
        let mut own = draft.sections.iter().filter(|section| section.kind != SectionKind::Defaults);
        let is_same = |place: &usize| {
            let known = &plan.source[*place];
            own.next().is_some_and(|section| {
                let from = section.from.as_ref().map(|from| from.as_str()).unwrap_or_default();
                section.kind == SectionKind::Backend
                    && section.name == *known.name
                    && *from == *known.from
                    && simple::is_separate(section)
            })
        };
        let are_same = self.indexes().collect::<Vec<_>>().iter().all(is_same);
        let is_whole = own.next().is_none();
        let inherits = draft.sections.iter().filter(|section| section.kind == SectionKind::Defaults);
        let fits = are_same && is_whole && inherits.clone().all(simple::is_inheritable);
        (fits && diagnostics.iter().next().is_none()).then_some(draft)
    }

    /// The text of the changed sections.
    fn sections(&self, draft: &Draft) -> impl Iterator<Item = PlacedSection> {
        let all = source_sections(draft, &self.sources).into_iter();
        all.filter(|section| &*section.kind != "defaults")
    }

    /// Resolves a draft of only these sections.
    fn resolve(
        &self,
        draft: &Draft,
        setting: &Setting,
        plan: &Plan,
        previous: Option<&Plan>,
    ) -> Option<Plan> {
        let around = Around::without_names(plan, &plan.patterns);
        let mut diagnostics = Diagnostics::new();
        let own = resolve::resolve(draft, &self.sources, setting, Some(&around), previous, &mut diagnostics)?;
        diagnostics.drop_advice();
        let is_alone = diagnostics.iter().next().is_none()
            && own.proxies.len() == self.changed.len()
            && own.variables.beyond(&plan.variables).is_none()
            && own.patterns.lists().len() == plan.patterns.lists().len()
            && own.tables.is_empty()
            && own.ring_servers.is_empty();
        is_alone.then_some(own)
    }
}

/// Whether a text may contain environment variables, or the number of its line.
fn has_variables(text: &[u8]) -> bool {
    memchr::memchr(b'$', text).is_some()
}

/// The lines before the first section.
fn head(file: &SectionedFile) -> &[u8] {
    let end = file.sections.first().map_or(file.text.len(), |first| first.at as usize);
    &file.text[..end]
}

/// Whether the state of `former` fits the new settings, and nothing else refers to its servers.
fn may_replace(former: &Proxy, own: &Proxy) -> bool {
    let servers = former.state.servers.load();
    former.mode == own.mode
        && former.disabled == own.disabled
        && !former.state.removed.load(Relaxed)
        && servers
            .iter()
            .all(|server| !server.referenced.load(Relaxed) && former.state.trackers(server).is_empty())
}
