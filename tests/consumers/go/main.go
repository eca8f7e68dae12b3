// consumers CONSUMER TREE LIST DIRECTORY: reads a list by the code of its consumer, for an image that has the files
// of the tree, and writes the names that the consumer takes, each with a NUL behind it, to the file names of the
// directory, which is empty.
package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/awslabs/soci-snapshotter/soci"
	"github.com/awslabs/soci-snapshotter/soci/store"
	"github.com/awslabs/soci-snapshotter/ztoc"
	"github.com/bmatcuk/doublestar/v4"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/platforms"
	analyzer "github.com/containerd/stargz-snapshotter/analyzer/recorder"
	"github.com/containerd/stargz-snapshotter/estargz"
	"github.com/containerd/stargz-snapshotter/recorder"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Bytes of a span of SOCI: small beside the files, so that spans tell them apart.
const spanSize = 1 << 16

func main() {
	consumer, tree, list, directory := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	read := map[string]func(tree, list, directory string) ([]string, error){
		"ctr-remote": ctrRemote,
		"estargz":    estargzRecord,
		"soci":       sociArtifact,
	}
	names, err := read[consumer](tree, list, directory)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	text := strings.Join(append(names, ""), "\x00")
	if err := os.WriteFile(filepath.Join(directory, "names"), []byte(text), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// estargzRecord gives the paths of a record to eStargz's builder, as ctr-remote and nerdctl do, and tells which files
// it puts before the landmark of what is prefetched.
func estargzRecord(tree, list, _ string) ([]string, error) {
	file, err := os.Open(list)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	decoder := json.NewDecoder(file)
	var paths []string
	for decoder.More() {
		var entry recorder.Entry
		if err := decoder.Decode(&entry); err != nil {
			return nil, err
		}
		paths = append(paths, entry.Path)
	}
	layer, err := archive(tree)
	if err != nil {
		return nil, err
	}
	// Names that are in no layer are errors here.
	blob, err := estargz.Build(io.NewSectionReader(bytes.NewReader(layer), 0, int64(len(layer))),
		estargz.WithPrioritizedFiles(paths))
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	compressed, err := io.ReadAll(blob)
	if err != nil {
		return nil, err
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	var names []string
	for reader := tar.NewReader(unpacked); ; {
		header, err := reader.Next()
		if err != nil {
			return nil, fmt.Errorf("no landmark: %w", err)
		}
		if header.Name == estargz.PrefetchLandmark {
			return names, nil
		}
		if header.Typeflag == tar.TypeReg {
			names = append(names, header.Name)
		}
	}
}

// ctrRemote records the lines of a list as `ctr-remote image optimize --prefetch-list` does, by its recorder and its
// matcher. How lines are read is in its package main: readPrefetchList and analyzePrefetchList.
func ctrRemote(tree, list, directory string) ([]string, error) {
	file, err := os.Open(list)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	contents, image, err := makeImage(tree, directory)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	recorded, err := analyzer.NewImageRecorder(ctx, contents, image, platforms.DefaultStrict())
	if err != nil {
		return nil, err
	}
	defer recorded.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
			continue
		case strings.ContainsAny(line, "*?["):
			matched, err := recorded.RecordGlob(line, doublestar.Match)
			if err != nil || matched != 1 {
				return nil, fmt.Errorf("%q matches %d files: %w", line, matched, err)
			}
		default:
			if err := recorded.Record(line); err != nil {
				return nil, err
			}
		}
	}
	digest, err := recorded.Commit(ctx)
	if err != nil {
		return nil, err
	}
	record, err := content.ReadBlob(ctx, contents, ocispec.Descriptor{Digest: digest})
	if err != nil {
		return nil, err
	}
	var names []string
	for decoder := json.NewDecoder(bytes.NewReader(record)); decoder.More(); {
		var entry recorder.Entry
		if err := decoder.Decode(&entry); err != nil {
			return nil, err
		}
		names = append(names, entry.Path)
	}
	return names, nil
}

// sociArtifact makes a SOCI index with the listed files, and tells which files lie in the spans that are prefetched.
func sociArtifact(tree, list, directory string) ([]string, error) {
	text, err := os.ReadFile(list)
	if err != nil {
		return nil, err
	}
	// As loadPrefetchFilesFromJSON, which is internal to the command.
	var paths []string
	if err := json.Unmarshal(text, &paths); err != nil {
		return nil, err
	}
	for index := range paths {
		paths[index] = strings.TrimSpace(paths[index])
	}
	contents, image, err := makeImage(tree, directory)
	if err != nil {
		return nil, err
	}
	blobs, err := store.NewSociStore(filepath.Join(directory, "soci"))
	if err != nil {
		return nil, err
	}
	artifacts, err := soci.NewDB(filepath.Join(directory, "artifacts.db"))
	if err != nil {
		return nil, err
	}
	builder, err := soci.NewIndexBuilder(contents, blobs, soci.WithArtifactsDb(artifacts), soci.WithMinLayerSize(0),
		soci.WithSpanSize(spanSize), soci.WithPrefetchPaths(paths))
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	index, err := builder.Build(ctx, image)
	if err != nil {
		return nil, err
	}
	var toc *ztoc.Ztoc
	var artifact *soci.PrefetchArtifact
	for _, descriptor := range index.Index.Blobs {
		blob, err := blobs.Fetch(ctx, descriptor)
		if err != nil {
			return nil, err
		}
		if descriptor.MediaType == soci.PrefetchArtifactMediaType {
			artifact, err = soci.UnmarshalPrefetchArtifact(blob)
		} else {
			toc, err = ztoc.Unmarshal(blob)
		}
		blob.Close()
		if err != nil {
			return nil, err
		}
	}
	return prefetched(toc, artifact)
}

func prefetched(toc *ztoc.Ztoc, artifact *soci.PrefetchArtifact) ([]string, error) {
	if toc == nil || artifact == nil {
		return nil, fmt.Errorf("the index has no ztoc or no prefetch artifact")
	}
	zinfo, err := toc.Zinfo()
	if err != nil {
		return nil, err
	}
	defer zinfo.Close()
	var names []string
	for _, file := range toc.FileMetadata {
		first := zinfo.UncompressedOffsetToSpanID(file.UncompressedOffset)
		last := zinfo.UncompressedOffsetToSpanID(file.UncompressedOffset + file.UncompressedSize)
		for _, span := range artifact.PrefetchSpans {
			if file.Type == "reg" && span.StartSpan <= first && last <= span.EndSpan {
				names = append(names, file.Name)
				break
			}
		}
	}
	return names, nil
}

// makeImage stores an image of one layer.
func makeImage(tree, directory string) (content.Store, images.Image, error) {
	contents, err := local.NewStore(filepath.Join(directory, "contents"))
	if err != nil {
		return nil, images.Image{}, err
	}
	layer, err := archive(tree)
	if err != nil {
		return nil, images.Image{}, err
	}
	var compressed bytes.Buffer
	writer := gzip.NewWriter(&compressed)
	if _, err := writer.Write(layer); err != nil {
		return nil, images.Image{}, err
	}
	if err := writer.Close(); err != nil {
		return nil, images.Image{}, err
	}
	config, err := json.Marshal(ocispec.Image{
		Platform: platforms.DefaultSpec(),
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(layer)}},
	})
	if err != nil {
		return nil, images.Image{}, err
	}
	manifest := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    descriptor(ocispec.MediaTypeImageConfig, config),
		Layers:    []ocispec.Descriptor{descriptor(ocispec.MediaTypeImageLayerGzip, compressed.Bytes())},
	}
	text, err := json.Marshal(manifest)
	if err != nil {
		return nil, images.Image{}, err
	}
	image := images.Image{Name: "image", Target: descriptor(ocispec.MediaTypeImageManifest, text)}
	blobs := map[*ocispec.Descriptor][]byte{
		&manifest.Layers[0]: compressed.Bytes(), &manifest.Config: config, &image.Target: text,
	}
	for descriptor, bytesOf := range blobs {
		reference := descriptor.Digest.String()
		err := content.WriteBlob(context.Background(), contents, reference, bytes.NewReader(bytesOf), *descriptor)
		if err != nil {
			return nil, images.Image{}, err
		}
	}
	return contents, image, nil
}

func descriptor(mediaType string, blob []byte) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(blob), Size: int64(len(blob))}
}

// archive makes a tar of a tree.
func archive(tree string) ([]byte, error) {
	var names []string
	err := filepath.WalkDir(tree, func(path string, _ fs.DirEntry, err error) error {
		names = append(names, path)
		return err
	})
	if err != nil {
		return nil, err
	}
	sort.Strings(names)
	var out bytes.Buffer
	writer := tar.NewWriter(&out)
	for _, path := range names[1:] {
		facts, err := os.Lstat(path)
		if err != nil {
			return nil, err
		}
		header, err := tar.FileInfoHeader(facts, "")
		if err != nil {
			return nil, err
		}
		if header.Name, err = filepath.Rel(tree, path); err != nil {
			return nil, err
		}
		if err := writer.WriteHeader(header); err != nil {
			return nil, err
		}
		if facts.Mode().IsRegular() {
			contents, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			if _, err := writer.Write(contents); err != nil {
				return nil, err
			}
		}
	}
	return out.Bytes(), writer.Close()
}
