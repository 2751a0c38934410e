// The same operator in Go, by controller-runtime: each Web's status has to say how many replicas its spec asks for, in
// the field BENCH_FIELD.
package main

import (
	"cmp"
	"context"
	"log"
	"maps"
	"os"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

type WebSpec struct {
	Image    string `json:"image,omitempty"`
	Replicas int32  `json:"replicas"`
}

// A status has a field for each operator that is measured beside others; here it is a map.
type WebStatus map[string]int32

type Web struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              WebSpec   `json:"spec,omitempty"`
	Status            WebStatus `json:"status,omitempty"`
}

type WebList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Web `json:"items"`
}

func (in *Web) DeepCopyObject() runtime.Object {
	out := *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status = maps.Clone(in.Status)
	return &out
}

func (in *WebList) DeepCopyObject() runtime.Object {
	out := &WebList{TypeMeta: in.TypeMeta}
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range in.Items {
		out.Items = append(out.Items, *in.Items[i].DeepCopyObject().(*Web))
	}
	return out
}

type reconciler struct {
	client.Client
	field string
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var web Web
	if err := r.Get(ctx, request.NamespacedName, &web); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if replicas, written := web.Status[r.field]; written && replicas == web.Spec.Replicas {
		return ctrl.Result{}, nil
	}
	before := web.DeepCopyObject().(*Web)
	if web.Status == nil {
		web.Status = WebStatus{}
	}
	web.Status[r.field] = web.Spec.Replicas
	return ctrl.Result{}, r.Status().Patch(ctx, &web, client.MergeFrom(before))
}

func main() {
	ctrl.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	version := schema.GroupVersion{Group: "example.com", Version: "v1"}
	scheme.AddKnownTypes(version, &Web{}, &WebList{})
	metav1.AddToGroupVersion(scheme, version)
	field := cmp.Or(os.Getenv("BENCH_FIELD"), "replicas")
	config := ctrl.GetConfigOrDie()
	config.QPS = -1 // not limited
	manager, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		log.Fatal(err)
	}
	err = ctrl.NewControllerManagedBy(manager).For(&Web{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8}).
		Complete(&reconciler{manager.GetClient(), field})
	if err != nil {
		log.Fatal(err)
	}
	if err := manager.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Print(err)
		os.Exit(1)
	}
}
