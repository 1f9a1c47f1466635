//! The guarded mount as the kernel really does it: the assumptions of the design, asserted.

mod world;

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use crate::isolation::isolated;
use world::{LARGE, World, drop_caches, noise};
use xebec_kernel::fanotify::{Answered, Denial, FanotifyError, Group};
use xebec_kernel::journal::Verdict;
use xebec_kernel::mount::{self, Attributes, Erofs};

const LIMIT: Duration = Duration::from_secs(30);

fn allow(_: u64) -> Verdict {
    Verdict::Allow
}

#[test]
fn reads_through_the_view_are_filled_first() {
    isolated("guarded::reads_through_the_view_are_filled_first", LIMIT, || {
        let Some(world) = World::new() else { return };
        world.guard();
        let _view = world.mount(&world.path("guarded/data"));
        let filler = world.fill(allow);
        assert!(std::fs::read(world.path("view/large")).unwrap() == world.large());
        assert_eq!(std::fs::read(world.path("view/small")).unwrap(), b"ten bytes.");
        assert!(!filler.events().is_empty());
    });
}

/// The design's order (mark first, mount second) is not a matter of taste: the reverse reads zeros.
#[test]
fn a_mark_that_comes_after_the_mount_guards_nothing() {
    isolated(
        "guarded::a_mark_that_comes_after_the_mount_guards_nothing",
        LIMIT,
        || {
            let Some(world) = World::new() else { return };
            mount::bind_private(&world.path("layers"), &world.path("guarded")).unwrap();
            let _view = world.mount(&world.path("guarded/data"));
            world.group.mark_mount(&world.path("guarded")).unwrap();
            let filler = world.fill(allow);
            let read = std::fs::read(world.path("view/large")).unwrap();
            assert!(
                read == vec![0; LARGE],
                "this kernel guards files that were opened before the mark"
            );
            assert_eq!(filler.events(), []);
        },
    );
}

/// After the last holder of a group died: a new group's mark on the same mount counts for files that were opened under the old one.
/// Pages that were read in between stay wrong in the view's page cache.
#[test]
fn the_next_groups_mark_counts_for_files_that_are_open_already() {
    isolated(
        "guarded::the_next_groups_mark_counts_for_files_that_are_open_already",
        LIMIT,
        || {
            let Some(mut world) = World::new() else { return };
            world.guard();
            let _view = world.mount(&world.path("guarded/data"));
            world.group = Arc::new(Group::new().unwrap());
            let small = std::fs::read(world.path("view/small")).unwrap();
            assert_eq!(small, [0; 10], "a hole is read as zeros while there is no group");
            world.group.mark_mount(&world.path("guarded")).unwrap();
            let filler = world.fill(allow);
            assert!(std::fs::read(world.path("view/large")).unwrap() == world.large());
            assert!(!filler.events().is_empty());
            let small = std::fs::read(world.path("view/small")).unwrap();
            assert_eq!(
                small, [0; 10],
                "the page cache forgot; then old views need no suspicion"
            );
        },
    );
}

#[test]
fn the_ordinary_path_is_free() {
    isolated("guarded::the_ordinary_path_is_free", LIMIT, || {
        let Some(world) = World::new() else { return };
        world.guard();
        // Nobody answers: were this guarded, it would hang.
        std::fs::write(world.path("layers/data"), &world.truth).unwrap();
        let _free = world.mount(&world.path("layers/data"));
        assert!(std::fs::read(world.path("view/large")).unwrap() == world.large());
        assert!(!world.group.wait(Duration::from_millis(50)).unwrap());
    });
}

#[test]
fn a_denied_read_fails_with_its_errno_and_can_be_tried_again() {
    isolated(
        "guarded::a_denied_read_fails_with_its_errno_and_can_be_tried_again",
        LIMIT,
        || {
            let Some(world) = World::new() else { return };
            world.guard();
            // Read directly: EROFS turns every error into EIO.
            let file = File::open(world.path("guarded/data")).unwrap();
            let mut byte = [0];
            let denials = [
                Denial::Io,
                Denial::NotPermitted,
                Denial::Busy,
                Denial::TextBusy,
                Denial::TryAgain,
                Denial::NoSpace,
                Denial::Quota,
            ];
            for denial in denials {
                let _filler = world.fill(move |_| Verdict::Deny(denial));
                let error = file.read_exact_at(&mut byte, 0).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(denial.errno()));
            }
            let _filler = world.fill(allow);
            file.read_exact_at(&mut byte, 0).unwrap();
            assert_eq!(byte[0], world.truth[0]);
        },
    );
}

#[test]
fn a_denied_read_of_the_view_is_an_error_never_zeros() {
    isolated(
        "guarded::a_denied_read_of_the_view_is_an_error_never_zeros",
        LIMIT,
        || {
            let Some(world) = World::new() else { return };
            world.guard();
            let _view = world.mount(&world.path("guarded/data"));
            {
                let _filler = world.fill(|_| Verdict::Deny(Denial::NoSpace));
                let error = std::fs::read(world.path("view/large")).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(Denial::Io.errno()));
            }
            let _filler = world.fill(allow);
            assert!(std::fs::read(world.path("view/large")).unwrap() == world.large());
        },
    );
}

#[test]
fn an_ignored_file_costs_no_event_until_it_is_asked_for_again() {
    isolated(
        "guarded::an_ignored_file_costs_no_event_until_it_is_asked_for_again",
        LIMIT,
        || {
            let Some(world) = World::new() else { return };
            world.guard();
            let _view = world.mount(&world.path("guarded/data"));
            let filler = world.fill(allow);
            let read = || {
                drop_caches();
                assert!(std::fs::read(world.path("view/large")).unwrap() == world.large());
                filler.events().len()
            };
            let first = read();
            let asked_again = read();
            assert!(
                first > 0 && asked_again > first,
                "events are raised for bytes that are there, too"
            );
            // By its ordinary path, while the view has it open by the guarded one; and writing does not undo it.
            let data = File::options()
                .read(true)
                .write(true)
                .open(world.path("layers/data"))
                .unwrap();
            world.group.ignore_file(&data).unwrap();
            data.write_all_at(&world.truth[..4096], 0).unwrap();
            assert_eq!(read(), asked_again);
            world.group.ignore_path(&world.path("layers/data")).unwrap();
            assert_eq!(read(), asked_again, "ignoring twice is ignoring");
            world.group.unignore_file(&data).unwrap();
            assert!(read() > asked_again);
        },
    );
}

#[test]
fn an_unmarked_mount_is_silent_at_once() {
    isolated("guarded::an_unmarked_mount_is_silent_at_once", LIMIT, || {
        let Some(world) = World::new() else { return };
        world.guard();
        let _view = world.mount(&world.path("guarded/data"));
        std::fs::write(world.path("layers/data"), &world.truth).unwrap();
        world.group.unmark_mount(&world.path("guarded")).unwrap();
        assert!(std::fs::read(world.path("view/large")).unwrap() == world.large());
        assert!(!world.group.wait(Duration::from_millis(20)).unwrap());
    });
}

#[test]
fn without_read_ahead_an_event_is_the_page_that_was_touched() {
    isolated(
        "guarded::without_read_ahead_an_event_is_the_page_that_was_touched",
        LIMIT,
        || {
            let Some(world) = World::new() else { return };
            world.guard();
            // With a read-ahead asked for, it is mounted until its backing device is told from those of other processes.
            let view = Erofs::new(world.path("metadata"))
                .device(world.path("guarded/data"))
                .read_ahead_kib(128)
                .mount_at(&world.path("view"), Attributes::empty())
                .unwrap();
            let backing = view.backing().unwrap().clone();
            let filler = world.fill(allow);
            let open = || File::open(world.path("view/large")).unwrap();
            let mut byte = [0];
            open().read_exact_at(&mut byte, 0).unwrap();
            let with_read_ahead: u64 = filler.events().iter().map(|(_, count)| count).sum();
            assert!(
                with_read_ahead > 4096,
                "read-ahead is {} KiB",
                backing.read_ahead_kib().unwrap()
            );

            backing.set_read_ahead_kib(0).unwrap();
            assert_eq!(backing.read_ahead_kib().unwrap(), 0);
            assert_eq!(mount::BackingDevice::named(backing.name()), Some(backing));
            let before = filler.events().len();
            // An open file keeps the read-ahead that it was opened with; and only reads in order are read ahead.
            let file = open();
            for page in [150, 151, 152, 200, 77] {
                file.read_exact_at(&mut byte, page * 4096 + 17).unwrap();
                assert_eq!(byte[0], world.large()[page as usize * 4096 + 17]);
            }
            let counts: Vec<u64> = filler.events()[before..]
                .iter()
                .map(|(_, count)| *count)
                .collect();
            assert_eq!(counts, [4096; 5]);
        },
    );
}

#[test]
fn read_ahead_can_be_chosen_for_each_of_many_mounts_at_once() {
    isolated(
        "guarded::read_ahead_can_be_chosen_for_each_of_many_mounts_at_once",
        LIMIT,
        || {
            let Some(world) = World::new() else { return };
            let mount = |kib: u32| {
                let erofs = Erofs::new(world.path("metadata")).device(world.path("layers/data"));
                erofs.read_ahead_kib(kib).mount(Attributes::empty()).unwrap()
            };
            let mounts: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8)
                    .map(|kib| {
                        let mount = &mount;
                        scope.spawn(move || (kib * 4, mount(kib * 4)))
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            for (kib, mount) in &mounts {
                assert_eq!(mount.backing().unwrap().read_ahead_kib().unwrap(), *kib);
            }
            let name = mounts[0].1.backing().unwrap().name().to_owned();
            drop(mounts);
            assert_eq!(mount::BackingDevice::named(&name), None);
        },
    );
}

#[test]
fn an_answer_to_nobody_is_told_apart() {
    isolated("guarded::an_answer_to_nobody_is_told_apart", LIMIT, || {
        let group = Group::new().unwrap();
        assert_eq!(group.allow(77).unwrap(), Answered::NotOwed);
        assert_eq!(group.deny(77, Denial::Io).unwrap(), Answered::NotOwed);
        let missing = group.mark_mount("/nowhere/at/all".as_ref()).unwrap_err();
        assert!(matches!(missing, FanotifyError::Mark { .. }) && missing.to_string().contains("/nowhere"));
    });
}

#[test]
fn five_hundred_devices_mount() {
    isolated("guarded::five_hundred_devices_mount", LIMIT, || {
        let Some(world) = World::new() else { return };
        world.guard();
        let devices: u16 = 500;
        give_devices(&world, devices);
        let mut erofs = Erofs::new(world.path("metadata")).device(world.path("guarded/data"));
        for number in 1..devices {
            let name = format!("data-with-a-name-as-long-as-that-of-a-digest-would-be-{number:064}");
            File::create(world.path("layers").join(&name))
                .unwrap()
                .set_len(4096)
                .unwrap();
            erofs = erofs.device(world.path("guarded").join(name));
        }
        let _view = erofs.mount_at(&world.path("view"), Attributes::empty()).unwrap();
        let _filler = world.fill(allow);
        assert!(std::fs::read(world.path("view/large")).unwrap() == world.large());

        let too_few = Erofs::new(world.path("metadata")).device(world.path("guarded/data"));
        let error = too_few.mount(Attributes::empty()).unwrap_err().to_string();
        assert!(error.contains("erofs") && error.contains("metadata"), "{error}");
    });
}

/// Gives the image a table of `devices` devices; the files in it stay on the first.
fn give_devices(world: &World, devices: u16) {
    // Offsets in struct erofs_super_block, which starts at byte 1024 (fs/erofs/erofs_fs.h).
    const EXTRA_DEVICES: usize = 1024 + 86;
    const DEVICE_TABLE_SLOT: usize = 1024 + 88;
    const SLOT: usize = 128;
    let mut image = std::fs::read(world.path("metadata")).unwrap();
    let slot = u16::try_from(image.len() / SLOT).unwrap();
    image[EXTRA_DEVICES..][..2].copy_from_slice(&devices.to_le_bytes());
    image[DEVICE_TABLE_SLOT..][..2].copy_from_slice(&slot.to_le_bytes());
    for number in 0..devices {
        let blocks = if number == 0 {
            world.truth.len().div_ceil(4096) as u32
        } else {
            1
        };
        let mut entry = [0; SLOT];
        entry[64..68].copy_from_slice(&blocks.to_le_bytes());
        image.extend(entry);
    }
    image.resize(image.len().next_multiple_of(4096), 0);
    std::fs::write(world.path("metadata"), image).unwrap();
}

/// fsconfig takes strings of 255 bytes; roots are deeper than that in some places.
#[test]
fn paths_longer_than_the_kernel_takes_are_guarded_too() {
    isolated(
        "guarded::paths_longer_than_the_kernel_takes_are_guarded_too",
        LIMIT,
        || {
            let Some(world) = World::new() else { return };
            let deep = format!("{0}/{0}", "d".repeat(200));
            std::fs::create_dir_all(world.path("layers").join(&deep)).unwrap();
            std::fs::rename(
                world.path("layers/data"),
                world.path("layers").join(&deep).join("data"),
            )
            .unwrap();
            std::os::unix::fs::symlink(format!("{deep}/data"), world.path("layers/data")).unwrap();
            world.guard();
            let _view = world.mount(&world.path("guarded").join(&deep).join("data"));
            let filler = world.fill(allow);
            assert!(std::fs::read(world.path("view/large")).unwrap() == world.large());
            assert!(!filler.events().is_empty());
        },
    );
}

#[test]
fn a_detached_view_is_read_by_its_descriptor_and_vanishes_with_it() {
    isolated(
        "guarded::a_detached_view_is_read_by_its_descriptor_and_vanishes_with_it",
        LIMIT,
        || {
            let Some(world) = World::new() else { return };
            world.guard();
            let before = mount::mounts().unwrap().len();
            let view = Erofs::new(world.path("metadata"))
                .device(world.path("guarded/data"))
                .mount(Attributes::MOUNT_ATTR_NOSUID | Attributes::MOUNT_ATTR_NODEV)
                .unwrap();
            let _filler = world.fill(allow);
            let mut contents = Vec::new();
            File::open(view.path().join("large"))
                .unwrap()
                .read_to_end(&mut contents)
                .unwrap();
            assert!(contents == world.large());
            assert_eq!(mount::mounts().unwrap().len(), before);
        },
    );
}

#[test]
fn when_the_group_ends_readers_see_zeros_which_is_why_there_is_a_keeper() {
    isolated(
        "guarded::when_the_group_ends_readers_see_zeros_which_is_why_there_is_a_keeper",
        LIMIT,
        || {
            let Some(mut world) = World::new() else { return };
            world.guard();
            let _view = world.mount(&world.path("guarded/data"));
            world.group = std::sync::Arc::new(Group::new().unwrap());
            assert!(std::fs::read(world.path("view/large")).unwrap() == vec![0; LARGE]);
            assert!(!noise(64).contains(&0));
        },
    );
}
