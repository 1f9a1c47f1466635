//! The modules of a crate, their items, and which file uses items of which.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

/// How often a name may lead to another name before that is given up.
const MOST_STEPS: u32 = 16;

/// A module, or a file's part that is one.
#[derive(Default)]
struct Module {
    file: usize,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    items: BTreeSet<String>,
    /// Names that stand for paths, by `use`, those that are passed on among them.
    names: BTreeMap<String, Vec<String>>,
    /// Paths all of whose names stand here.
    globs: Vec<Vec<String>>,
    /// Paths that are used, those of `use` among them.
    paths: BTreeSet<Vec<String>>,
}

/// The sources of a crate, tests aside.
#[derive(Default)]
pub(crate) struct Sources {
    /// Paths below the root's directory.
    pub(crate) files: Vec<String>,
    modules: Vec<Module>,
}

impl Sources {
    /// Reads all files of the crate whose root file that is.
    pub(crate) fn read(root: &Path) -> Self {
        let mut sources = Self::default();
        sources.read_file(root.parent().unwrap(), root, None);
        sources
    }

    /// Which file uses which items of which other.
    pub(crate) fn uses(&self) -> BTreeMap<(usize, usize), BTreeSet<String>> {
        let mut uses: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
        for (number, module) in self.modules.iter().enumerate() {
            for path in &module.paths {
                if let Some((file, item)) = self.find(number, path, MOST_STEPS)
                    && file != module.file
                {
                    uses.entry((module.file, file)).or_default().insert(item);
                }
            }
        }
        uses
    }

    fn read_file(&mut self, top: &Path, path: &Path, parent: Option<usize>) -> usize {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let file = self.files.len();
        self.files
            .push(path.strip_prefix(top).unwrap().display().to_string());
        let is_root = parent.is_none();
        let directory = match path.file_stem().unwrap().to_str().unwrap() {
            "mod" => path.parent().unwrap().to_owned(),
            _ if is_root => path.parent().unwrap().to_owned(),
            stem => path.with_file_name(stem),
        };
        self.read_items(top, &directory, file, parent, &parsed.items)
    }

    fn read_items(
        &mut self,
        top: &Path,
        directory: &Path,
        file: usize,
        parent: Option<usize>,
        items: &[Item],
    ) -> usize {
        let number = self.modules.len();
        self.modules.push(Module {
            file,
            parent,
            ..Module::default()
        });
        for item in items.iter().filter(|item| !is_for_tests(attributes(item))) {
            if let Item::Mod(module) = item {
                let name = module.ident.to_string();
                let below = directory.join(&name);
                let child = match &module.content {
                    Some((_, items)) => self.read_items(top, &below, file, Some(number), items),
                    None => {
                        let beside = directory.join(format!("{name}.rs"));
                        let path = if beside.exists() {
                            beside
                        } else {
                            below.join("mod.rs")
                        };
                        self.read_file(top, &path, Some(number))
                    }
                };
                self.modules[number].children.insert(name, child);
            } else {
                self.modules[number].visit_item(item);
                let defined = defines(item);
                self.modules[number].items.extend(defined);
            }
        }
        number
    }

    /// The file where an item is defined that `path` names in a module, and its name there; none for modules and other crates.
    fn find(&self, module: usize, path: &[String], steps: u32) -> Option<(usize, String)> {
        let (mut at, mut rest) = (module, path);
        let mut is_first = true;
        while let Some((name, others)) = rest.split_first() {
            let here = &self.modules[at];
            match name.as_str() {
                "crate" => at = 0,
                "self" => {}
                "super" => at = here.parent?,
                name => {
                    if let Some(child) = here.children.get(name) {
                        at = *child;
                    } else if here.items.contains(name) {
                        return Some((here.file, name.to_owned()));
                    } else {
                        return self.find_by_use(at, name, others, is_first, steps);
                    }
                }
            }
            (rest, is_first) = (others, false);
        }
        None
    }

    fn find_by_use(
        &self,
        at: usize,
        name: &str,
        others: &[String],
        is_first: bool,
        steps: u32,
    ) -> Option<(usize, String)> {
        let here = &self.modules[at];
        let steps = steps.checked_sub(1)?;
        if let Some(stands_for) = here.names.get(name) {
            let whole: Vec<String> = stands_for.iter().chain(others).cloned().collect();
            // A name that stands for itself is another crate's.
            let is_other = is_first && stands_for.first().is_some_and(|first| first == name);
            return if is_other {
                None
            } else {
                self.find(at, &whole, steps)
            };
        }
        here.globs.iter().find_map(|glob| {
            let whole: Vec<String> = glob
                .iter()
                .cloned()
                .chain([name.to_owned()])
                .chain(others.iter().cloned())
                .collect();
            self.find(at, &whole, steps)
        })
    }
}

impl Module {
    fn take_use(&mut self, before: &[String], tree: &UseTree, passes_on: bool) {
        let with = |name: &syn::Ident| {
            let mut path = before.to_vec();
            path.push(name.to_string());
            path
        };
        match tree {
            UseTree::Path(path) => self.take_use(&with(&path.ident), &path.tree, passes_on),
            UseTree::Group(group) => group
                .items
                .iter()
                .for_each(|tree| self.take_use(before, tree, passes_on)),
            UseTree::Glob(_) => self.globs.push(before.to_vec()),
            UseTree::Name(name) if name.ident == "self" => {
                let Some(last) = before.last() else { return };
                self.names.insert(last.clone(), before.to_vec());
            }
            UseTree::Name(name) => {
                self.take_name(&name.ident, with(&name.ident), passes_on);
            }
            UseTree::Rename(rename) => {
                self.take_name(&rename.rename, with(&rename.ident), passes_on);
            }
        }
    }

    fn take_name(&mut self, name: &syn::Ident, path: Vec<String>, passes_on: bool) {
        if !passes_on {
            self.paths.insert(path.clone());
        }
        self.names.insert(name.to_string(), path);
    }

    /// Paths among the words of a macro's call, which no parser knows.
    fn take_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.take_path(std::mem::take(&mut path));
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.take_path(std::mem::take(&mut path));
                    self.take_tokens(group.stream());
                }
                _ => {
                    self.take_path(std::mem::take(&mut path));
                    colons = 0;
                }
            }
        }
        self.take_path(path);
    }

    fn take_path(&mut self, path: Vec<String>) {
        if !path.is_empty() {
            self.paths.insert(path);
        }
    }
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // A name that is only passed on is not used here.
        let passes_on = !matches!(item.vis, Visibility::Inherited);
        self.take_use(&[], &item.tree, passes_on);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter().map(|segment| segment.ident.to_string());
        self.take_path(names.collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.take_tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }

    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|condition| condition.is_ident("test"))
    })
}

fn defines(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}
