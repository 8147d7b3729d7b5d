//! Keys for gRPC.

#[cfg(feature = "grpc-descriptors")]
mod descriptors;
mod grpc_key;
mod message;
#[cfg(test)]
mod tests;

#[cfg(feature = "grpc-descriptors")]
pub use self::descriptors::{DescriptorError, DescriptorErrorKind};
pub use self::grpc_key::GrpcKey;
