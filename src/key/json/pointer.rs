//! JSON pointers (RFC 6901) to the members that are left out.

use std::{error::Error, fmt};

use super::scan::quote;

/// The members that are left out, as a tree.
#[derive(Clone, Debug)]
pub(in crate::key) struct Pointers {
    nodes: Vec<Node>,
    all: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    children: Vec<Child>,
    left_out: bool,
}

#[derive(Clone, Debug)]
struct Child {
    /// As the scanner writes names.
    name: String,
    index: Option<u64>,
    node: usize,
}

/// A place in the tree; none where nothing below is left out.
pub(super) type Place = Option<usize>;

impl Default for Pointers {
    fn default() -> Self {
        Self { nodes: vec![Node::default()], all: Vec::new() }
    }
}

impl Pointers {
    pub(in crate::key) fn insert(&mut self, pointer: &str) -> Result<(), PointerError> {
        let wrong = |rule| PointerError { pointer: pointer.to_owned(), rule };
        let tokens = match pointer.strip_prefix('/') {
            Some(tokens) => tokens,
            None if pointer.is_empty() => return Err(wrong("names the whole body")),
            None => return Err(wrong("must begin with `/`")),
        };
        let names: Option<Vec<String>> = tokens.split('/').map(unescape).collect();
        let names = names.ok_or_else(|| wrong("has a `~` without `0` or `1`"))?;
        let mut at = 0;
        for name in &names {
            at = self.descend(at, name);
        }
        self.nodes[at].left_out = true;
        self.all.extend_from_slice(&(pointer.len() as u64).to_le_bytes());
        self.all.extend_from_slice(pointer.as_bytes());
        Ok(())
    }

    fn descend(&mut self, at: usize, name: &str) -> usize {
        let index = name.parse().ok().filter(|index: &u64| index.to_string() == name);
        let name = quote(name);
        if let Some(child) = self.nodes[at].children.iter().find(|child| child.name == name) {
            return child.node;
        }
        let node = self.nodes.len();
        self.nodes.push(Node::default());
        self.nodes[at].children.push(Child { name, index, node });
        node
    }

    /// All pointers, so that other lists give other keys.
    pub(in crate::key) fn all(&self) -> &[u8] {
        &self.all
    }

    pub(super) fn root(&self) -> Place {
        Some(0).filter(|root: &usize| !self.nodes[*root].children.is_empty())
    }

    /// The place of a member, its name as the scanner writes it.
    pub(super) fn member(&self, place: Place, name: &str) -> Place {
        self.child(place, |child| child.name == name)
    }

    /// The place of an element.
    pub(super) fn element(&self, place: Place, index: u64) -> Place {
        self.child(place, |child| child.index == Some(index))
    }

    fn child(&self, place: Place, is: impl Fn(&Child) -> bool) -> Place {
        self.nodes[place?].children.iter().find(|child| is(child)).map(|child| child.node)
    }

    pub(super) fn leaves_out(&self, place: Place) -> bool {
        place.is_some_and(|place| self.nodes[place].left_out)
    }
}

fn unescape(token: &str) -> Option<String> {
    let mut name = String::with_capacity(token.len());
    let mut chars = token.chars();
    while let Some(char) = chars.next() {
        name.push(match char {
            '~' => match chars.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            },
            other => other,
        });
    }
    Some(name)
}

/// A text that is no JSON pointer (RFC 6901) to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointerError {
    pointer: String,
    rule: &'static str,
}

impl PointerError {
    /// The text.
    #[must_use]
    pub fn pointer(&self) -> &str {
        &self.pointer
    }
}

impl fmt::Display for PointerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the JSON pointer {:?} {}", self.pointer, self.rule)
    }
}

impl Error for PointerError {}
