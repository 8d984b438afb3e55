{{- define "millrace.name" -}}
{{- if contains "millrace" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-millrace" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "millrace.serviceAccount" -}}
{{- default (include "millrace.name" .) .Values.serviceAccount.name }}
{{- end }}

{{- define "millrace.selector" -}}
app.kubernetes.io/name: millrace
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "millrace.labels" -}}
{{ include "millrace.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "millrace.image" -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{- /* The pod of a component: dict root component image port args resources, and volumes and mounts as lists. */ -}}
{{- define "millrace.pod" -}}
{{- $v := .root.Values -}}
metadata:
  labels:
    {{- include "millrace.labels" . | nindent 4 }}
    {{- with $v.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- with $v.podAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "millrace.serviceAccount" .root }}
  automountServiceAccountToken: false
  enableServiceLinks: false # their variables would begin with the release's name
  {{- with $v.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $v.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "millrace.selector" . | nindent 10 }}
  terminationGracePeriodSeconds: 160 # a process whose tasks do not stop ends by itself after 150 s
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  initContainers:
    - name: home # the image's kernels and jars, where the process may write
      image: {{ include "millrace.image" . }}
      imagePullPolicy: {{ .image.pullPolicy }}
      command: [cp, -r, /var/cache/millrace/., /mnt/home/]
      securityContext: &confined
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      resources: {{- toYaml .resources | nindent 8 }}
      volumeMounts:
        - {name: home, mountPath: /mnt/home}
  containers:
    - name: {{ .component }}
      image: {{ include "millrace.image" . }}
      imagePullPolicy: {{ .image.pullPolicy }}
      args: {{- toYaml .args | nindent 8 }}
      env:
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: MILLRACE_HTTP, value: "0.0.0.0:{{ .port }}"}
        - {name: MILLRACE_CLUSTER, value: {{ $v.cluster | quote }}}
        - {name: MILLRACE_ZOOKEEPER, value: {{ required "zookeeper.hosts is needed" $v.zookeeper.hosts | quote }}}
        {{- if $v.kafka.config }}
        - {name: MILLRACE_KAFKA_CONFIG, value: {{ printf "/etc/millrace/secrets/%s" $v.kafka.config | quote }}}
        {{- else if $v.kafka.bootstrap }}
        - {name: MILLRACE_KAFKA, value: {{ $v.kafka.bootstrap | quote }}}
        {{- end }}
        - {name: MILLRACE_LOG, value: {{ $v.log | quote }}}
        {{- with $v.extraEnv }}{{ toYaml . | nindent 8 }}{{ end }}
      ports:
        - {name: metrics, containerPort: {{ .port }}}
        {{- with .ports }}{{ toYaml . | nindent 8 }}{{ end }}
      livenessProbe: {httpGet: {path: /livez, port: metrics}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6}
      readinessProbe: {httpGet: {path: /readyz, port: metrics}, periodSeconds: 5, timeoutSeconds: 5}
      securityContext: *confined
      resources: {{- toYaml .resources | nindent 8 }}
      volumeMounts:
        - {name: home, mountPath: /var/cache/millrace}
        - {name: tmp, mountPath: /tmp}
        {{- if $v.secretName }}
        - {name: secrets, mountPath: /etc/millrace/secrets, readOnly: true}
        {{- end }}
        {{- with .mounts }}{{ toYaml . | nindent 8 }}{{ end }}
  volumes:
    - {name: home, emptyDir: {}}
    - {name: tmp, emptyDir: {}}
    {{- if $v.secretName }}
    - {name: secrets, secret: {secretName: {{ $v.secretName }}, defaultMode: 0440}}
    {{- end }}
    {{- with .volumes }}{{ toYaml . | nindent 4 }}{{ end }}
{{- end }}
