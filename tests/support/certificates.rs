//! Certificates of a test's own.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// An authority, and what it vouched for, as files in a folder.
pub(crate) struct Certificates {
    folder: tempfile::TempDir,
}

impl Certificates {
    /// For a server on the loopback interface, and for a client.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, "the root of this test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).expect("a root");
        write(folder.path(), "root.pem", &root.pem());
        let issuer = Issuer::new(params, key);
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        for (name, names) in [("server", names), ("client", vec!["client".to_owned()])] {
            let key = KeyPair::generate().expect("a key");
            let mut params = CertificateParams::new(names).expect("parameters");
            // By another name than the root's, or it passes for a root itself.
            params.distinguished_name.push(DnType::CommonName, name);
            let certificate = params.signed_by(&key, &issuer).expect("a certificate");
            write(folder.path(), &format!("{name}.pem"), &certificate.pem());
            write(folder.path(), &format!("{name}.key"), &key.serialize_pem());
        }
        Self { folder }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn pem(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.file(name)).expect("a file of these")
    }

    /// The arguments of a server that has its certificate from here, and asks clients
    /// for theirs: `yes`, `no` or `optional`.
    pub(crate) fn server_args(&self, ask_clients: &str) -> Vec<String> {
        let files =
            [("cert-file", "server.pem"), ("key-file", "server.key"), ("ca-cert-file", "root.pem")];
        let mut args = vec!["--tls-auth-clients".to_owned(), ask_clients.to_owned()];
        for (argument, file) in files {
            args.push(format!("--tls-{argument}"));
            args.push(self.file(file).display().to_string());
        }
        args
    }
}

fn write(folder: &Path, name: &str, pem: &str) {
    std::fs::write(folder.join(name), pem).expect("a file is written");
}
