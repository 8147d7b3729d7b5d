use std::fmt;

use http::{HeaderMap, HeaderName};

use super::{Answer, Print};

/// In which parts a run's answer differs from the one that would have been shared. Names
/// only.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The one may be shared and the other may not.
    sharing: bool,
    status: bool,
    headers: Vec<HeaderName>,
    body: bool,
    trailers: Vec<HeaderName>,
}

impl Difference {
    /// `None` where a caller would have been given the same.
    pub(crate) fn between(shared: &Print, own: &Print) -> Option<Self> {
        let (Print::Answer(shared), Print::Answer(own)) = (shared, own) else {
            return Some(Self { sharing: true, ..Self::default() });
        };
        let difference = Self::of(shared, own);
        (difference != Self::default()).then_some(difference)
    }

    fn of(one: &Answer, other: &Answer) -> Self {
        Self {
            sharing: false,
            status: one.status != other.status,
            headers: differing(&one.headers, &other.headers),
            body: one.body != other.body,
            trailers: differing(&one.trailers, &other.trailers),
        }
    }
}

/// The names that the two have not in common, or with other values.
fn differing(one: &HeaderMap, other: &HeaderMap) -> Vec<HeaderName> {
    let changed = one.iter().filter(|(name, value)| other.get(*name) != Some(value));
    let added = other.iter().filter(|(name, _)| !one.contains_key(*name));
    let mut names: Vec<_> = changed.chain(added).map(|(name, _)| name.clone()).collect();
    names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
    names
}

/// `status, headers (etag, x-b), body`
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.sharing, "sharing", &Vec::new()),
            (self.status, "status", &Vec::new()),
            (!self.headers.is_empty(), "headers", &self.headers),
            (self.body, "body", &Vec::new()),
            (!self.trailers.is_empty(), "trailers", &self.trailers),
        ];
        let mut before = "";
        for (_, part, names) in parts.into_iter().filter(|(differs, ..)| *differs) {
            write!(f, "{before}{part}")?;
            before = ", ";
            if let Some((first, rest)) = names.split_first() {
                write!(f, " ({first}")?;
                rest.iter().try_for_each(|name| write!(f, ", {name}"))?;
                f.write_str(")")?;
            }
        }
        Ok(())
    }
}
