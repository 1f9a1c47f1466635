//! Places in a list that name nothing.
//!
//! A list shows a caller what they may see, and a page of it may end at a name that they may not. The link to the next page must say
//! where to go on, and not that name. So the name is encrypted there: `~`, and in base64url a nonce and the name by AES-256-GCM, filled
//! up to the length of the longest, so that the length says nothing either. The key is derived from that of the registry's tokens
//! ([`super::token_key`]): any node goes on where another one ended. Neither a name nor a tag begins with `~`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::error::Unspecified;
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::rand::{SecureRandom as _, SystemRandom};

/// The first character of a place.
const MARK: char = '~';

/// The purpose from which the key is derived. Another form of places needs another text here.
const PURPOSE: &[u8] = b"xebec-registry: places in lists, 1";

/// A length of one byte, and the longest name.
const FILLED: usize = 256;

/// Makes places and reads them.
#[derive(Debug)]
pub(super) struct Places(LessSafeKey);

impl Places {
    /// By a key that is derived from this one.
    pub(super) fn by(secret: &[u8]) -> Result<Self, Unspecified> {
        let derived = Salt::new(HKDF_SHA256, &[]).extract(secret);
        let derived = derived.expand(&[PURPOSE], &AES_256_GCM)?;
        Ok(Self(LessSafeKey::new(UnboundKey::from(derived))))
    }

    /// The place after a name. `None` for what is too long to be one, or if the kernel gives no random bytes.
    pub(super) fn after(&self, name: &str) -> Option<String> {
        let mut filled = vec![u8::try_from(name.len()).ok()?];
        filled.extend_from_slice(name.as_bytes());
        filled.resize(FILLED, 0);
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let mut place = nonce.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0
            .seal_in_place_append_tag(nonce, Aad::empty(), &mut filled)
            .ok()?;
        place.append(&mut filled);
        Some(format!("{MARK}{}", URL_SAFE_NO_PAD.encode(place)))
    }

    /// The name that a place is after. `None` for a place that was not made by this key.
    pub(super) fn name(&self, place: &str) -> Option<String> {
        let mut sealed = URL_SAFE_NO_PAD.decode(place.strip_prefix(MARK)?).ok()?;
        let (nonce, sealed) = sealed.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let filled = self.0.open_in_place(nonce, Aad::empty(), sealed).ok()?;
        let (length, rest) = filled.split_first()?;
        let name = rest.get(..usize::from(*length))?;
        String::from_utf8(name.to_vec()).ok()
    }
}

/// Whether a text is to be read as a place, and not as a name.
pub(super) fn is_place(text: &str) -> bool {
    text.starts_with(MARK)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_place_says_neither_the_name_nor_its_length() {
        let places = Places::by(b"a key").unwrap();
        let (short, long) = (
            places.after("a").unwrap(),
            places.after(&"b".repeat(255)).unwrap(),
        );
        assert_eq!(short.len(), long.len());
        assert_ne!(short, places.after("a").unwrap());
        assert_eq!(places.after(&"b".repeat(256)), None);
        let name = "team/secret";
        let place = places.after(name).unwrap();
        let bytes = URL_SAFE_NO_PAD.decode(&place[1..]).unwrap();
        assert!(!bytes.windows(name.len()).any(|part| part == name.as_bytes()));
    }

    #[test]
    fn a_place_counts_for_its_own_key_and_unchanged() {
        let places = Places::by(b"a key").unwrap();
        let place = places.after("team/secret").unwrap();
        assert_eq!(
            Places::by(b"a key").unwrap().name(&place).as_deref(),
            Some("team/secret")
        );
        assert_eq!(Places::by(b"another key").unwrap().name(&place), None);
        for at in 0..place.len() {
            let mut changed = place.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(places.name(&String::from_utf8(changed).unwrap()), None, "{at}");
        }
        for cut in 0..place.len() {
            assert_eq!(places.name(&place[..cut]), None, "{cut}");
        }
    }

    proptest! {
        #[test]
        fn each_name_is_found_again(name in "[a-z0-9/._-]{0,255}") {
            let places = Places::by(b"a key").unwrap();
            let place = places.after(&name).unwrap();
            prop_assert!(is_place(&place) && !is_place(&name));
            prop_assert_eq!(places.name(&place), Some(name));
        }

        #[test]
        fn any_text_is_read(text in "~?\\PC{0,500}") {
            prop_assert_eq!(Places::by(b"a key").unwrap().name(&text), None);
        }
    }
}
