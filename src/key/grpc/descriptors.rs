//! Methods as a file descriptor set has them.

use std::{error::Error, fmt};

use prost::{DecodeError, Message};
use prost_types::{FileDescriptorSet, MethodDescriptorProto};

use super::GrpcKey;

impl<F> GrpcKey<F> {
    /// Shares these methods, as [`methods`](Self::methods) does, once each is found
    /// in this encoded file descriptor set (`FILE_DESCRIPTOR_SET` of tonic's build,
    /// or what `protoc --descriptor_set_out` writes).
    ///
    /// ```no_run
    /// use tonic::body::Body;
    /// use tower_singleflight::GrpcKey;
    ///
    /// # const FILE_DESCRIPTOR_SET: &[u8] = &[];
    /// # fn f() -> Result<(), tower_singleflight::key::DescriptorError> {
    /// let key = GrpcKey::new(Body::new)
    ///     .methods_in(FILE_DESCRIPTOR_SET, ["/reports.Reports/Get"])?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The set cannot be read or does not have a method, or the client of a method
    /// sends a stream, whose calls cannot be shared.
    pub fn methods_in(
        self,
        set: &[u8],
        paths: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, DescriptorError> {
        let set = FileDescriptorSet::decode(set).map_err(|source| DescriptorError {
            kind: DescriptorErrorKind::Unreadable,
            method: String::new(),
            source: Some(source),
        })?;
        paths.into_iter().try_fold(self, |key, path| {
            let path = path.as_ref();
            let wrong = |kind| DescriptorError { kind, method: path.to_owned(), source: None };
            let method = find(&set, path).ok_or_else(|| wrong(DescriptorErrorKind::Unknown))?;
            if method.client_streaming() {
                return Err(wrong(DescriptorErrorKind::ClientStreaming));
            }
            Ok(key.method(path))
        })
    }
}

fn find<'a>(set: &'a FileDescriptorSet, path: &str) -> Option<&'a MethodDescriptorProto> {
    let (service, method) = path.strip_prefix('/').unwrap_or(path).split_once('/')?;
    let (package, service) = service.rsplit_once('.').unwrap_or(("", service));
    set.file
        .iter()
        .filter(|file| file.package() == package)
        .flat_map(|file| &file.service)
        .filter(|found| found.name() == service)
        .flat_map(|found| &found.method)
        .find(|found| found.name() == method)
}

/// Why methods cannot be shared as a file descriptor set has them.
#[derive(Clone, Debug)]
pub struct DescriptorError {
    kind: DescriptorErrorKind,
    method: String,
    source: Option<DecodeError>,
}

/// The kinds of [`DescriptorError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DescriptorErrorKind {
    /// The bytes are no file descriptor set.
    Unreadable,
    /// The set does not have the method.
    Unknown,
    /// The client of the method sends a stream.
    ClientStreaming,
}

impl DescriptorError {
    /// The kind.
    #[must_use]
    pub fn kind(&self) -> DescriptorErrorKind {
        self.kind
    }

    /// The method, as it was named; empty where the set cannot be read.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.method
    }
}

impl fmt::Display for DescriptorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = &self.method;
        match self.kind {
            DescriptorErrorKind::Unreadable => {
                f.write_str("these bytes are no file descriptor set")
            }
            DescriptorErrorKind::Unknown => {
                write!(f, "the file descriptor set has no method {method}")
            }
            DescriptorErrorKind::ClientStreaming => {
                write!(f, "the client of {method} sends a stream, which cannot be shared")
            }
        }
    }
}

impl Error for DescriptorError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
