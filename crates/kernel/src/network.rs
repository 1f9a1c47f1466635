//! Network namespaces, and the few things about interfaces that need a system call.
//!
//! A namespace is made by a thread of its own, which ends at once: the other threads of this process stay in
//! theirs. A process that holds its file, or a mount of it, keeps the namespace.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::thread::UnshareFlags;

use crate::mount::{Attributes, MountError, bind_private_on};

/// Makes a network namespace, in which the loopback interface is up.
///
/// # Errors
/// The error of the kernel; without `CAP_SYS_ADMIN` that is `EPERM`.
pub fn new_namespace() -> io::Result<File> {
    std::thread::scope(|scope| {
        let maker = std::thread::Builder::new().spawn_scoped(scope, || {
            // SAFETY: it moves this thread to another network, and touches neither memory nor descriptors.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
            change_flags("lo", |flags| flags | libc::IFF_UP)?;
            File::open("/proc/thread-self/ns/net")
        })?;
        maker.join().unwrap_or_else(|_| {
            Err(io::Error::other(
                "the thread that makes a network namespace panicked",
            ))
        })
    })
}

/// Mounts a namespace on the file `at`, so that it stays when no process is in it, and has a path.
///
/// # Errors
/// [`MountError::Attach`].
pub fn mount_namespace(namespace: &File, at: &Path) -> Result<(), MountError> {
    let origin = format!("/proc/self/fd/{}", namespace.as_raw_fd());
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(at, flags, Mode::empty()).map_err(|errno| MountError::Attach {
        origin: "a network namespace".to_owned(),
        target: at.to_owned(),
        source: errno.into(),
    })?;
    let none = Attributes::empty();
    bind_private_on(Path::new(&origin), file.as_fd(), at, none, none)
}

/// The IPv4 address of an interface of this process's network; `None` if it has none, or there is no such
/// interface.
///
/// # Errors
/// The error of the kernel.
pub fn address_of(interface: &str) -> io::Result<Option<Ipv4Addr>> {
    let mut request = named(interface)?;
    match ask(libc::SIOCGIFADDR, &mut request) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL | libc::ENODEV)) => {
            return Ok(None);
        }
        outcome => outcome?,
    }
    // SAFETY: the kernel has written an address of this family there (`inet_gifconf`, `net/ipv4/devinet.c`).
    let address = unsafe { request.ifr_ifru.ifru_addr };
    if i32::from(address.sa_family) != libc::AF_INET {
        return Ok(None);
    }
    // `struct sockaddr_in`: two bytes of the port, then the address.
    let [_, _, a, b, c, d, ..] = address.sa_data.map(i8::cast_unsigned);
    Ok(Some(Ipv4Addr::new(a, b, c, d)))
}

/// Removes a bridge of this process's network.
///
/// # Errors
/// The error of the kernel: `ENXIO` or `ENODEV` if there is no such interface, `EPERM` if it is no bridge.
pub fn remove_bridge(bridge: &str) -> io::Result<()> {
    let busy = rustix::io::Errno::BUSY.raw_os_error();
    match delete_bridge(bridge) {
        // It is a bridge, and up (`br_del_bridge`, net/bridge/br_if.c). Nothing else is taken down.
        Err(error) if error.raw_os_error() == Some(busy) => {
            change_flags(bridge, |flags| flags & !libc::IFF_UP)?;
            delete_bridge(bridge)
        }
        outcome => outcome,
    }
}

fn delete_bridge(bridge: &str) -> io::Result<()> {
    let name = named(bridge)?.ifr_name;
    let socket = socket()?;
    // SAFETY: the name ends with a NUL (`named`), and the kernel reads it during the call only.
    let code = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCBRDELBR, name.as_ptr()) };
    match code {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Removes a bridge by its name (`include/uapi/linux/sockios.h`).
const SIOCBRDELBR: libc::Ioctl = 0x89a1;

/// Changes the flags of an interface (`netdevice(7)`).
fn change_flags(interface: &str, change: impl FnOnce(i32) -> i32) -> io::Result<()> {
    let mut request = named(interface)?;
    ask(libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the kernel has written the flags there.
    let flags = i32::from(unsafe { request.ifr_ifru.ifru_flags });
    request.ifr_ifru.ifru_flags = change(flags) as libc::c_short;
    ask(libc::SIOCSIFFLAGS, &mut request)
}

/// A question about the interface of that name.
fn named(interface: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all of it may be zero: a name, and numbers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    if interface.is_empty() || interface.len() > room || interface.bytes().any(|byte| byte == 0) {
        let what = format!("{interface:?} cannot name a network interface");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from.cast_signed();
    }
    Ok(request)
}

fn ask(question: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    let socket = socket()?;
    // SAFETY: these questions read and write one `ifreq`, during the call only.
    let code = unsafe { libc::ioctl(socket.as_raw_fd(), question, std::ptr::from_mut(request)) };
    match code {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Any socket of the thread's network leads to its interfaces.
fn socket() -> io::Result<OwnedFd> {
    let kind = SocketType::DGRAM;
    Ok(rustix::net::socket_with(
        AddressFamily::INET,
        kind,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_its_address() {
        let address = std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                enter_new_namespace().then(|| {
                    change_flags("lo", |flags| flags | libc::IFF_UP).unwrap();
                    address_of("lo").unwrap()
                })
            });
            asking.join().unwrap()
        });
        match address {
            Some(address) => assert_eq!(address, Some(Ipv4Addr::LOCALHOST)),
            None => println!("SKIPPED: needs root"),
        }
        assert_eq!(address_of("no-such-one").unwrap(), None);
        assert!(address_of("a name that is too long").is_err() && address_of("").is_err());
    }

    #[test]
    fn what_is_no_bridge_is_neither_removed_nor_taken_down() {
        assert!(remove_bridge("no-such-one").is_err());
        let tried = std::thread::scope(|scope| {
            let trying = scope.spawn(|| {
                enter_new_namespace().then(|| {
                    change_flags("lo", |flags| flags | libc::IFF_UP).unwrap();
                    let removed = remove_bridge("lo");
                    let mut is_up = false;
                    change_flags("lo", |flags| {
                        is_up = flags & libc::IFF_UP != 0;
                        flags
                    })
                    .unwrap();
                    (removed, is_up)
                })
            });
            trying.join().unwrap()
        });
        match tried {
            Some((removed, is_up)) => assert!(removed.is_err() && is_up, "{removed:?}, up: {is_up}"),
            None => println!("SKIPPED: needs root"),
        }
    }

    /// Moves this thread to a network of its own. False without the right to.
    fn enter_new_namespace() -> bool {
        // SAFETY: it moves this thread to another network, and touches neither memory nor descriptors.
        rustix::process::geteuid().is_root()
            && unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.is_ok()
    }

    #[test]
    fn a_namespace_is_another_one_and_this_process_stays_where_it_is() {
        use std::os::unix::fs::MetadataExt;
        if !rustix::process::geteuid().is_root() {
            return println!("SKIPPED: needs root");
        }
        let number = || std::fs::metadata("/proc/self/ns/net").unwrap().ino();
        let before = number();
        let made = new_namespace().unwrap();
        assert_ne!(made.metadata().unwrap().ino(), before);
        assert_eq!(number(), before);
    }
}
