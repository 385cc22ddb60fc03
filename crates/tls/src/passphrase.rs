//! Decrypts private keys: PKCS #8 with PBES2 (RFC 8018), as written by OpenSSL 3. OpenSSL handles older schemes (`Proc-Type`,
//! PBES1) and scrypt.

use std::num::NonZeroU32;

use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, Algorithm, DecryptionContext, PaddedBlockDecryptingKey, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::pbkdf2::{self, PBKDF2_HMAC_SHA1, PBKDF2_HMAC_SHA256, PBKDF2_HMAC_SHA384, PBKDF2_HMAC_SHA512};

use crate::der::{self, Der};
use crate::legacy;
use crate::pem::{self, PemBlock};

/// 1.2.840.113549.1.5.13 and .12
const PBES2: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 5, 13];
const PBKDF2: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 5, 12];
/// The object identifier 1.2.840.113549.2, after which the last component selects the digest.
const HMAC: [u8; 7] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 2];
/// The object identifier 2.16.840.1.101.3.4.1, after which the last component selects the key length and the mode.
const AES: [u8; 8] = [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 1];

/// The maximum number of rounds that a file may specify, which take some seconds.
const ROUNDS_MAX: u32 = 10_000_000;

/// An encrypted key and its encryption parameters.
struct Encrypted<'a> {
    salt: &'a [u8],
    rounds: NonZeroU32,
    digest: pbkdf2::Algorithm,
    cipher: &'static Algorithm,
    key_length: usize,
    iv: [u8; 16],
    text: &'a [u8],
}

const WRONG: &str = "wrong passphrase for a private key";

/// Decrypts the key in a PEM block, to DER.
///
/// # Errors
/// The encryption is not supported, or the passphrase is wrong.
pub(crate) fn open(block: &PemBlock<'_>, passphrase: &[u8]) -> Result<Vec<u8>, &'static str> {
    let framed = if block.encryption.is_none() { Encrypted::parse(&block.data) } else { None };
    match framed {
        Some(encrypted) => encrypted.decrypt(passphrase),
        None if !legacy::BUILT_IN => {
            Err("its encryption requires OpenSSL, but this program was built without `legacy-tls`; use \
                                          `openssl pkcs8 -topk8` to convert it")
        }
        None => legacy::open_key(&text(block), passphrase)
            .ok_or("wrong passphrase for a private key, or unsupported encryption"),
    }
}

/// Returns the original text of the block.
fn text(block: &PemBlock<'_>) -> String {
    let headers = match block.encryption {
        Some(how) => format!("Proc-Type: 4,ENCRYPTED\nDEK-Info: {how}\n\n"),
        None => String::new(),
    };
    pem::block_with(block.label, &headers, &block.data)
}

impl<'a> Encrypted<'a> {
    fn decrypt(&self, passphrase: &[u8]) -> Result<Vec<u8>, &'static str> {
        let mut key = [0; 32];
        let key = &mut key[..self.key_length];
        pbkdf2::derive(self.digest, self.rounds, self.salt, passphrase, key);
        let key = UnboundCipherKey::new(self.cipher, key).map_err(|_| WRONG)?;
        let key = PaddedBlockDecryptingKey::cbc_pkcs7(key).map_err(|_| WRONG)?;
        let mut text = self.text.to_vec();
        let iv = DecryptionContext::Iv128(FixedLength::from(self.iv));
        let plain = key.decrypt(&mut text, iv).map_err(|_| WRONG)?;
        // For one in 256 wrong passphrases, the padding looks valid.
        match Der(plain).take(der::SEQUENCE) {
            Some(_) => Ok(plain.to_vec()),
            None => Err(WRONG),
        }
    }

    fn parse(der: &'a [u8]) -> Option<Self> {
        let mut all = Der(der).take(der::SEQUENCE)?;
        let mut algorithm = all.take(der::SEQUENCE)?;
        let text = all.take(der::OCTET_STRING)?.0;
        if algorithm.take(der::OID)?.0 != PBES2 {
            return None;
        }
        let mut parameters = algorithm.take(der::SEQUENCE)?;
        let mut derivation = parameters.take(der::SEQUENCE)?;
        let mut encryption = parameters.take(der::SEQUENCE)?;
        if derivation.take(der::OID)?.0 != PBKDF2 {
            return None;
        }
        let mut derivation = derivation.take(der::SEQUENCE)?;
        let salt = derivation.take(der::OCTET_STRING)?.0;
        let rounds = number(derivation.take(der::INTEGER)?.0)?;
        derivation.option(der::INTEGER)?;
        let digest = match derivation.option(der::SEQUENCE)? {
            None => PBKDF2_HMAC_SHA1,
            Some(mut named) => match named.take(der::OID)?.0.strip_prefix(&HMAC)? {
                [7] => PBKDF2_HMAC_SHA1,
                [9] => PBKDF2_HMAC_SHA256,
                [10] => PBKDF2_HMAC_SHA384,
                [11] => PBKDF2_HMAC_SHA512,
                _ => return None,
            },
        };
        let (cipher, key_length) = match encryption.take(der::OID)?.0.strip_prefix(&AES)? {
            [2] => (&AES_128, 16),
            [22] => (&AES_192, 24),
            [42] => (&AES_256, 32),
            _ => return None,
        };
        let iv = encryption.take(der::OCTET_STRING)?.0.try_into().ok()?;
        let rounds = NonZeroU32::new(rounds).filter(|rounds| rounds.get() <= ROUNDS_MAX)?;
        Some(Self { salt, rounds, digest, cipher, key_length, iv, text })
    }
}

fn number(bytes: &[u8]) -> Option<u32> {
    let bytes = bytes.strip_prefix(&[0]).unwrap_or(bytes);
    (bytes.len() <= 4).then(|| bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
}
