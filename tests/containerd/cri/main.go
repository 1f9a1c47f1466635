// cri is as much of a kubelet as the tests need: it asks containerd's CRI service at CONTAINERD_ADDRESS.
//
//	cri pull IMAGE [USER PASSWORD]   prints the image's id
//	cri start IMAGE NAME [FIRST]     a pod of the host's network with one container, in the control group /NAME;
//	                                 prints both ids; if that fails, the pod is removed. With FIRST in a user namespace
//	                                 whose ids are the host's from that one on (hostUsers: false)
//	cri exec CONTAINER COMMAND...    prints what it prints, and fails as it fails
//	cri stop POD                     stops and removes the pod and what is in it
//	cri rmi IMAGE
//	cri usage                        prints the bytes that the snapshotter says its images take
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// How long one call may take.
const patience = 2 * time.Minute

type kubelet struct {
	images  runtime.ImageServiceClient
	runtime runtime.RuntimeServiceClient
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(words []string) error {
	if len(words) == 0 {
		return errors.New("cri pull|start|exec|stop|rmi|usage ...")
	}
	connection, err := grpc.NewClient(
		"unix://"+os.Getenv("CONTAINERD_ADDRESS"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	)
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	k := kubelet{runtime.NewImageServiceClient(connection), runtime.NewRuntimeServiceClient(connection)}
	name, rest := words[0], words[1:]
	switch {
	case name == "pull" && (len(rest) == 1 || len(rest) == 3):
		return k.pull(ctx, rest)
	case name == "start" && (len(rest) == 2 || len(rest) == 3):
		return k.start(ctx, rest[0], rest[1], rest[2:])
	case name == "exec" && len(rest) >= 2:
		return k.exec(ctx, rest[0], rest[1:])
	case name == "stop" && len(rest) == 1:
		return k.stop(ctx, rest[0])
	case name == "rmi" && len(rest) == 1:
		_, err := k.images.RemoveImage(ctx, &runtime.RemoveImageRequest{Image: image(rest[0])})
		return err
	case name == "usage" && len(rest) == 0:
		return k.usage(ctx)
	}
	return fmt.Errorf("cannot do %q", words)
}

func image(name string) *runtime.ImageSpec { return &runtime.ImageSpec{Image: name} }

// sandbox describes a pod; the container needs the description again.
func sandbox(name string, namespaces *runtime.NamespaceOption) *runtime.PodSandboxConfig {
	return &runtime.PodSandboxConfig{
		Metadata: &runtime.PodSandboxMetadata{Name: name, Uid: name, Namespace: "default"},
		Linux: &runtime.LinuxPodSandboxConfig{
			CgroupParent:    "/" + name,
			SecurityContext: &runtime.LinuxSandboxSecurityContext{NamespaceOptions: namespaces},
		},
	}
}

// namespaces has the host's network, since there is no network plugin, and the host's users unless it is told from which id on
// a pod has its own.
func namespaces(first []string) (*runtime.NamespaceOption, error) {
	options := &runtime.NamespaceOption{Network: runtime.NamespaceMode_NODE}
	if len(first) == 0 {
		return options, nil
	}
	id, err := strconv.ParseUint(first[0], 10, 32)
	ids := []*runtime.IDMapping{{HostId: uint32(id), Length: 65536}}
	options.UsernsOptions = &runtime.UserNamespace{Mode: runtime.NamespaceMode_POD, Uids: ids, Gids: ids}
	return options, err
}

func (k kubelet) pull(ctx context.Context, words []string) error {
	request := &runtime.PullImageRequest{Image: image(words[0])}
	if len(words) == 3 {
		request.Auth = &runtime.AuthConfig{Username: words[1], Password: words[2]}
	}
	answer, err := k.images.PullImage(ctx, request)
	if err != nil {
		return err
	}
	fmt.Println(answer.ImageRef)
	return nil
}

func (k kubelet) start(ctx context.Context, reference, name string, first []string) (err error) {
	options, err := namespaces(first)
	if err != nil {
		return err
	}
	config := sandbox(name, options)
	pod, err := k.runtime.RunPodSandbox(ctx, &runtime.RunPodSandboxRequest{Config: config})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.stop(ctx, pod.PodSandboxId))
		}
	}()
	container, err := k.runtime.CreateContainer(ctx, &runtime.CreateContainerRequest{
		PodSandboxId:  pod.PodSandboxId,
		SandboxConfig: config,
		Config: &runtime.ContainerConfig{
			Metadata: &runtime.ContainerMetadata{Name: name},
			Image:    &runtime.ImageSpec{Image: reference, UserSpecifiedImage: reference},
			Linux: &runtime.LinuxContainerConfig{
				SecurityContext: &runtime.LinuxContainerSecurityContext{NamespaceOptions: options},
			},
		},
	})
	if err != nil {
		return err
	}
	request := &runtime.StartContainerRequest{ContainerId: container.ContainerId}
	if _, err := k.runtime.StartContainer(ctx, request); err != nil {
		return err
	}
	fmt.Println(pod.PodSandboxId, container.ContainerId)
	return nil
}

func (k kubelet) exec(ctx context.Context, container string, command []string) error {
	answer, err := k.runtime.ExecSync(ctx, &runtime.ExecSyncRequest{ContainerId: container, Cmd: command})
	if err != nil {
		return err
	}
	os.Stdout.Write(answer.Stdout)
	os.Stderr.Write(answer.Stderr)
	if answer.ExitCode != 0 {
		return fmt.Errorf("%q: exit code %d", command, answer.ExitCode)
	}
	return nil
}

func (k kubelet) stop(ctx context.Context, pod string) error {
	if _, err := k.runtime.StopPodSandbox(ctx, &runtime.StopPodSandboxRequest{PodSandboxId: pod}); err != nil {
		return err
	}
	_, err := k.runtime.RemovePodSandbox(ctx, &runtime.RemovePodSandboxRequest{PodSandboxId: pod})
	return err
}

func (k kubelet) usage(ctx context.Context) error {
	answer, err := k.images.ImageFsInfo(ctx, &runtime.ImageFsInfoRequest{})
	if err != nil {
		return err
	}
	for _, use := range answer.ImageFilesystems {
		fmt.Println(use.GetUsedBytes().GetValue(), use.GetFsId().GetMountpoint())
	}
	return nil
}
