//! Which packages programs are made of, from the manifests and the lock file. Pure.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use serde::Deserialize;
use toml::{Table, Value};

/// The manifest of the workspace, and the file that says which versions are taken.
pub(super) const MANIFEST: &str = "Cargo.toml";
pub(super) const LOCK: &str = "Cargo.lock";
/// Tables of a manifest that are compiled into programs.
const COMPILED: [&str; 2] = ["dependencies", "build-dependencies"];
/// Keys of a manifest that no figure depends on.
const UNUSED: [&str; 2] = ["dev-dependencies", "lints"];

/// The packages of the workspace, by name.
#[derive(Debug)]
pub(super) struct Packages {
    own: BTreeMap<String, Package>,
    workspace: Table,
    locked: Vec<Locked>,
}

#[derive(Debug)]
struct Package {
    directory: String,
    manifest: Table,
}

#[derive(Debug, Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

/// A package of the lock file.
#[derive(Debug, Deserialize)]
struct Locked {
    name: String,
    version: String,
    #[serde(default)]
    checksum: String,
    /// "NAME", or "NAME VERSION" where there are several.
    #[serde(default)]
    dependencies: Vec<String>,
}

/// What programs are made of.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Parts {
    /// Directories of the workspace's packages, each with the part of its manifest that matters.
    pub own: BTreeMap<String, String>,
    /// The packages from elsewhere: name, version and checksum, a line each.
    pub locked: String,
    /// How all of them are compiled.
    pub settings: String,
}

impl Packages {
    /// The packages with these manifests, each with its directory.
    ///
    /// # Errors
    /// A text has another format.
    pub(super) fn new<'a>(
        workspace: &str,
        lock: &str,
        manifests: impl IntoIterator<Item = (&'a str, String)>,
    ) -> anyhow::Result<Self> {
        let mut own = BTreeMap::new();
        for (directory, text) in manifests {
            let read = || -> anyhow::Result<(String, Table)> {
                let manifest: Table = text.parse()?;
                let name = manifest.get("package").and_then(|package| package.get("name")?.as_str());
                Ok((name.context("no name")?.to_owned(), manifest))
            };
            let (name, manifest) = read().with_context(|| format!("{directory}/{MANIFEST}"))?;
            own.insert(name, Package { directory: directory.to_owned(), manifest });
        }
        let workspace = workspace.parse().context(MANIFEST)?;
        let Lock { package: locked } = toml::from_str(lock).context(LOCK)?;
        Ok(Self { own, workspace, locked })
    }

    /// What the programs and libraries of these packages are made of.
    ///
    /// # Errors
    /// A package isn't there.
    pub(super) fn parts(&self, programs: &[&str]) -> anyhow::Result<Parts> {
        let mut open: Vec<String> = programs.iter().map(|name| (*name).to_owned()).collect();
        let (mut parts, mut seen) = (Parts::default(), BTreeSet::new());
        let (mut elsewhere, mut asked) = (Vec::new(), BTreeSet::new());
        while let Some(name) = open.pop() {
            let package = self.own.get(&name).with_context(|| format!("no package {name}"))?;
            if !seen.insert(name.clone()) {
                continue;
            }
            parts.own.insert(package.directory.clone(), package.essence()?);
            let dependencies = package.dependencies();
            let locked = self.locked.iter().filter(|locked| locked.name == name);
            for dependency in locked.flat_map(|locked| &locked.dependencies) {
                let name = dependency.split(' ').next().unwrap_or_default();
                if self.own.contains_key(name) || !dependencies.contains(name) {
                    continue;
                }
                elsewhere.push(dependency.as_str());
                asked.insert(name);
            }
            open.extend(
                dependencies.into_iter().filter(|name| self.own.contains_key(*name)).map(str::to_owned),
            );
        }
        parts.locked = self.lines(elsewhere);
        parts.settings = self.settings(&asked)?;
        Ok(parts)
    }

    /// The lock file's packages of these names and all that they depend on, a line each.
    fn lines<'a>(&'a self, mut open: Vec<&'a str>) -> String {
        let mut found = BTreeSet::new();
        while let Some(dependency) = open.pop() {
            let mut words = dependency.split(' ');
            let (name, version) = (words.next().unwrap_or_default(), words.next());
            let meant =
                |one: &&Locked| one.name == name && version.is_none_or(|version| one.version == version);
            for Locked { name, version, checksum, dependencies } in self.locked.iter().filter(meant) {
                if found.insert(format!("{name} {version} {checksum}")) {
                    open.extend(dependencies.iter().map(String::as_str));
                }
            }
        }
        Vec::from_iter(found).join("\n")
    }

    fn settings(&self, asked: &BTreeSet<&str>) -> anyhow::Result<String> {
        let table = |value: Option<&Value>| value.and_then(Value::as_table).cloned().unwrap_or_default();
        let workspace = table(self.workspace.get("workspace"));
        let release = self.workspace.get("profile").and_then(|profile| profile.get("release"));
        let mut asked_for = table(workspace.get("dependencies"));
        asked_for.retain(|name, _| asked.contains::<str>(name));
        let settings = [("release", table(release)), ("dependencies", asked_for)]
            .map(|(name, table)| (name.to_owned(), Value::Table(table)));
        Ok(toml::to_string(&Table::from_iter(settings))?)
    }
}

impl Package {
    /// Names of the packages that this one is compiled with.
    fn dependencies(&self) -> BTreeSet<&str> {
        let targets = self.manifest.get("target").and_then(Value::as_table);
        let targets = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
        let tables = std::iter::once(&self.manifest).chain(targets);
        let compiled =
            tables.flat_map(|table| COMPILED.iter().filter_map(|name| table.get(*name)?.as_table()));
        compiled
            .flatten()
            .map(|(name, asked)| asked.get("package").and_then(Value::as_str).unwrap_or(name))
            .collect()
    }

    /// The part of the manifest that matters.
    fn essence(&self) -> anyhow::Result<String> {
        let mut manifest = self.manifest.clone();
        manifest.retain(|name, _| !UNUSED.contains(&name));
        if let Some(package) = manifest.get_mut("package").and_then(Value::as_table_mut) {
            package.remove("description");
        }
        Ok(toml::to_string(&manifest)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKSPACE: &str = "[workspace.dependencies]\na = \"1\"\nb = { version = \"2\", features = [\"x\"] }\n\
        [profile.release]\nstrip = true\n[profile.dev]\nopt-level = 1\n";
    const LOCK_FILE: &str = r#"
        [[package]]
        name = "one"
        version = "0.1.0"
        dependencies = ["a", "b 2.0.0", "two"]
        [[package]]
        name = "two"
        version = "0.1.0"
        [[package]]
        name = "a"
        version = "1.0.0"
        checksum = "aa"
        dependencies = ["c"]
        [[package]]
        name = "b"
        version = "1.0.0"
        [[package]]
        name = "b"
        version = "2.0.0"
        [[package]]
        name = "c"
        version = "3.0.0"
        [[package]]
        name = "d"
        version = "4.0.0"
    "#;
    const ONE: &str = "[package]\nname = \"one\"\n[dependencies]\na = \"1\"\ntwo = \"0.1\"\n[dev-dependencies]\nb = \"2\"\n";
    const TWO: &str = "[package]\nname = \"two\"\ndescription = \"Two\"\n[lints]\nworkspace = true\n";

    fn parts(lock: &str, one: &str, two: &str) -> Parts {
        let manifests = [("crates/one", one.to_owned()), ("crates/two", two.to_owned())];
        Packages::new(WORKSPACE, lock, manifests).unwrap().parts(&["one"]).unwrap()
    }

    #[test]
    fn what_a_program_is_made_of() {
        let found = parts(LOCK_FILE, ONE, TWO);
        assert_eq!(found.own.keys().collect::<Vec<_>>(), ["crates/one", "crates/two"]);
        // What only its tests need isn't a part of it.
        assert_eq!(found.locked, "a 1.0.0 aa\nc 3.0.0 ");
        assert_eq!(found.settings, "[dependencies]\na = \"1\"\n\n[release]\nstrip = true\n");
        let newer = |name: &str, version: &str, newer: &str| {
            let line = |version: &str| format!("\"{name}\"\n        version = \"{version}\"");
            let (from, to) = (line(version), line(newer));
            assert!(LOCK_FILE.contains(&from));
            LOCK_FILE.replace(&from, &to)
        };
        for (name, lock, one, two, is_same) in [
            ("a version", newer("c", "3.0.0", "3.0.1"), ONE, TWO, false),
            ("another's version", newer("d", "4.0.0", "4.0.1"), ONE, TWO, true),
            ("a test's version", newer("b", "2.0.0", "2.0.1"), ONE, TWO, true),
            ("a description", LOCK_FILE.to_owned(), ONE, "[package]\nname = \"two\"\n", true),
            (
                "a test's package",
                LOCK_FILE.to_owned(),
                "[package]\nname = \"one\"\n[dependencies]\na = \"1\"\ntwo = \"0.1\"\n",
                TWO,
                true,
            ),
            (
                "a build script's package",
                LOCK_FILE.to_owned(),
                &format!("{ONE}[build-dependencies]\nb = \"2\"\n"),
                TWO,
                false,
            ),
        ] {
            assert_eq!(parts(&lock, one, two) == found, is_same, "{name}");
        }
        let none = Packages::new(WORKSPACE, LOCK_FILE, []).unwrap();
        assert!(none.parts(&["one"]).is_err());
    }
}
