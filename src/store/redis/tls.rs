//! Certificates, for servers that speak TLS.

use std::{fmt, sync::Arc};

use bb8_redis::redis::{Client, ClientTlsConfig, ConnectionInfo, TlsCertificates};
use rustls::crypto::{CryptoProvider, ring};

use super::address::Address;
use crate::store::{StoreError, StoreErrorKind};

/// Whom to trust, and who to be.
#[derive(Clone, Default)]
pub(super) struct Tls {
    root: Option<Vec<u8>>,
    client: Option<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    pub(super) fn set_root(&mut self, pem: Vec<u8>) {
        self.root = Some(pem);
    }

    pub(super) fn set_client(&mut self, certificate: Vec<u8>, key: Vec<u8>) {
        self.client = Some((certificate, key));
    }

    /// The same address, reached with these certificates.
    pub(super) fn apply(&self, address: Address) -> Result<Address, StoreError> {
        let given = self.root.is_some() || self.client.is_some();
        if !address.uses_tls() {
            return if given {
                Err(refused("certificates need an address that begins with rediss://"))
            } else {
                Ok(address)
            };
        }
        // Without one that is the process's, a first connection would choose, or panic
        // where there are two to choose from.
        if CryptoProvider::get_default().is_none() {
            // Another one came first: then that one.
            let _ = ring::default_provider().install_default();
        }
        if !given {
            return Ok(address);
        }
        let sentinels = match address.sentinels {
            Some(sentinels) => {
                let sentinels = Arc::unwrap_or_clone(sentinels);
                Some(Arc::new(sentinels.with_places(|place| self.trust(place))?))
            }
            None => None,
        };
        let nodes = match address.nodes {
            Some(nodes) => {
                let nodes = nodes.iter().cloned().map(|node| self.trust(node));
                Some(nodes.collect::<Result<_, _>>()?)
            }
            None => None,
        };
        Ok(Address { info: self.trust(address.info)?, sentinels, nodes, ..address })
    }

    fn trust(&self, info: ConnectionInfo) -> Result<ConnectionInfo, StoreError> {
        if self.root.as_ref().is_some_and(|pem| !has_certificate(pem)) {
            return Err(refused("root_certificate must be a certificate in PEM"));
        }
        let certificates = TlsCertificates {
            client_tls: self.client.clone().map(|(certificate, key)| ClientTlsConfig {
                client_cert: certificate,
                client_key: key,
            }),
            root_cert: self.root.clone(),
        };
        let client = Client::build_with_tls(info, certificates);
        let client = client.map_err(|_| refused("certificate and key must be in PEM"))?;
        Ok(client.get_connection_info().clone())
    }
}

fn has_certificate(pem: &[u8]) -> bool {
    let begin = b"-----BEGIN CERTIFICATE-----";
    pem.windows(begin.len()).any(|window| window == begin)
}

fn refused(text: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Setting, text)
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("root", &self.root.is_some())
            .field("client", &self.client.is_some())
            .finish()
    }
}
