-- Made by make.py 6 postgres; never to be changed.
SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE public.blobs (
    digest text NOT NULL COLLATE pg_catalog."C",
    size bigint NOT NULL,
    object text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    changed bigint NOT NULL,
    damaged bigint DEFAULT 0 NOT NULL,
    scrubbed bigint DEFAULT 0 NOT NULL,
    unchecked bigint DEFAULT 1 NOT NULL,
    dedup_state text DEFAULT 'waiting'::text NOT NULL COLLATE pg_catalog."C",
    dedup_due bigint DEFAULT 0 NOT NULL,
    dedup_tries bigint DEFAULT 0 NOT NULL,
    dedup_problem text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    wanted text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    popular_until bigint DEFAULT 0 NOT NULL,
    unplaced bigint DEFAULT 1 NOT NULL,
    placing_due bigint DEFAULT 0 NOT NULL,
    CONSTRAINT blobs_state_check CHECK ((state = ANY (ARRAY['present'::text, 'condemned'::text])))
);
CREATE TABLE public.chunks (
    digest bytea NOT NULL,
    pack bigint NOT NULL
);
CREATE TABLE public.drafts (
    object text NOT NULL COLLATE pg_catalog."C",
    size bigint NOT NULL,
    since bigint NOT NULL,
    place text DEFAULT 'main'::text NOT NULL COLLATE pg_catalog."C",
    progress bytea
);
CREATE TABLE public.garbage (
    object text NOT NULL COLLATE pg_catalog."C",
    size bigint NOT NULL,
    progress bytea,
    since bigint NOT NULL,
    place text DEFAULT 'main'::text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.layer_indexes (
    layer text NOT NULL COLLATE pg_catalog."C",
    made text NOT NULL COLLATE pg_catalog."C",
    problem text NOT NULL COLLATE pg_catalog."C",
    changed bigint NOT NULL
);
CREATE TABLE public.manifest_contents (
    digest text NOT NULL COLLATE pg_catalog."C",
    content bytea NOT NULL
);
CREATE TABLE public.manifest_references (
    repository bigint NOT NULL,
    manifest text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    digest text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT manifest_references_kind_check CHECK ((kind = ANY (ARRAY['config'::text, 'layer'::text, 'manifest'::text])))
);
CREATE TABLE public.manifests (
    repository bigint NOT NULL,
    digest text NOT NULL COLLATE pg_catalog."C",
    media_type text NOT NULL COLLATE pg_catalog."C",
    artifact_type text COLLATE pg_catalog."C",
    subject text COLLATE pg_catalog."C",
    annotations text NOT NULL COLLATE pg_catalog."C",
    size bigint NOT NULL,
    created bigint NOT NULL,
    pulled bigint NOT NULL,
    indexing text DEFAULT 'waiting'::text NOT NULL COLLATE pg_catalog."C",
    indexing_due bigint DEFAULT 0 NOT NULL,
    indexing_tries bigint DEFAULT 0 NOT NULL,
    indexing_problem text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    pushed bigint DEFAULT 0 NOT NULL
);
CREATE TABLE public.packs (
    id bigint NOT NULL,
    object text NOT NULL COLLATE pg_catalog."C",
    size bigint NOT NULL,
    checksum text NOT NULL COLLATE pg_catalog."C",
    plain bigint NOT NULL,
    chunks bigint NOT NULL,
    state text NOT NULL COLLATE pg_catalog."C",
    created bigint NOT NULL,
    damaged bigint DEFAULT 0 NOT NULL,
    scrubbed bigint DEFAULT 0 NOT NULL,
    unchecked bigint DEFAULT 1 NOT NULL,
    unplaced bigint DEFAULT 1 NOT NULL,
    placing_due bigint DEFAULT 0 NOT NULL,
    CONSTRAINT packs_state_check CHECK ((state = ANY (ARRAY['present'::text, 'condemned'::text])))
);
CREATE TABLE public.places (
    name text NOT NULL COLLATE pg_catalog."C",
    mark text NOT NULL COLLATE pg_catalog."C",
    since bigint NOT NULL
);
CREATE TABLE public.recipe_packs (
    recipe text NOT NULL COLLATE pg_catalog."C",
    pack bigint NOT NULL
);
CREATE TABLE public.recipes (
    digest text NOT NULL COLLATE pg_catalog."C",
    object text NOT NULL COLLATE pg_catalog."C",
    size bigint NOT NULL,
    checksum text NOT NULL COLLATE pg_catalog."C",
    plain bigint NOT NULL,
    proven bigint NOT NULL,
    damaged bigint DEFAULT 0 NOT NULL,
    scrubbed bigint DEFAULT 0 NOT NULL,
    form text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.replicas (
    key text NOT NULL COLLATE pg_catalog."C",
    place text NOT NULL COLLATE pg_catalog."C",
    object text NOT NULL COLLATE pg_catalog."C",
    data bigint NOT NULL,
    parity bigint NOT NULL,
    shard bigint NOT NULL,
    size bigint NOT NULL,
    checksum text NOT NULL COLLATE pg_catalog."C",
    whole bigint NOT NULL,
    made bigint NOT NULL,
    damaged bigint DEFAULT 0 NOT NULL,
    scrubbed bigint DEFAULT 0 NOT NULL
);
CREATE TABLE public.repositories (
    id bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    created bigint NOT NULL,
    unchecked bigint DEFAULT 1 NOT NULL
);
CREATE TABLE public.repository_blobs (
    repository bigint NOT NULL,
    digest text NOT NULL COLLATE pg_catalog."C",
    added bigint NOT NULL,
    unchecked bigint DEFAULT 1 NOT NULL,
    unplaced bigint DEFAULT 1 NOT NULL
);
CREATE TABLE public.rules (
    name text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.schema_versions (
    version bigint NOT NULL
);
CREATE TABLE public.tags (
    repository bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    digest text NOT NULL COLLATE pg_catalog."C",
    created bigint NOT NULL,
    updated bigint NOT NULL,
    pulled bigint NOT NULL
);
CREATE TABLE public.uploads (
    id text NOT NULL COLLATE pg_catalog."C",
    repository bigint NOT NULL,
    object text NOT NULL COLLATE pg_catalog."C",
    size bigint NOT NULL,
    progress bytea,
    started bigint NOT NULL,
    touched bigint NOT NULL,
    holder text COLLATE pg_catalog."C"
);
INSERT INTO public.blobs VALUES ('sha256:9d99a75171aea000c711b34c0e5e3f28d3d537dd99d110eafbfbc2bd8e52c2bf', 37, '01/01010101010101010101010101010101', 'present', 1780000000000, 0, 0, 0, 'waiting', 0, 0, '', '', 0, 1, 0);
INSERT INTO public.blobs VALUES ('sha512:7367e44105d5f4b1677a67f6a29c1d19db4b19f4908829ea1b2948441af6096fbd39628ccf4800c4e8eeb66c0c7cd2c67b3875113aeb729b3990376aef740ac4', 17, '05/05050505050505050505050505050505', 'present', 1780000004000, 0, 0, 0, 'waiting', 0, 0, '', '', 0, 1, 0);
INSERT INTO public.blobs VALUES ('sha256:29a47c834a8efe4bc2833eb4d847a61f31950c0cac92352c1e8256b9c4c4d061', 18, '06/06060606060606060606060606060606', 'present', 1780000067000, 0, 0, 0, 'waiting', 0, 0, '', '', 0, 1, 0);
INSERT INTO public.blobs VALUES ('sha256:a0e87c09668c7fddd9dacf1054084d600b474144f2a50fde4721523337ba7b87', 22, 'none:sha256:a0e87c09668c7fddd9dacf1054084d600b474144f2a50fde4721523337ba7b87', 'condemned', 1780000068000, 0, 0, 1, 'done', 0, 0, '', '', 0, 4, 0);
INSERT INTO public.blobs VALUES ('sha256:9006a7c79a7d38292b6d55fa962ab35c3dce4a1e1107d18fe9ea061299e71785', 20, '04/04040404040404040404040404040404', 'present', 1780000003000, 1780000068000, 1780000068000, 0, 'waiting', 0, 0, '', '', 0, 1, 0);
INSERT INTO public.blobs VALUES ('sha256:de1610e37850cee80a7cabdd5a9f2daffd779f09dfe6ad24d8d3ee58127ad721', 16, '02/02020202020202020202020202020202', 'present', 1780000001000, 0, 1780000068000, 0, 'kept', 0, 0, 'its encoder is unknown', 'intact@main intact@one', 0, 0, 0);
INSERT INTO public.blobs VALUES ('sha256:7d513ce6c613714095cc31e4d195193be88115ccb6c0fe06c226f4e992ef2a11', 16, '03/03030303030303030303030303030303', 'present', 1780000002000, 0, 0, 0, 'waiting', 0, 0, '', '', 1780000669000, 2, 0);
INSERT INTO public.chunks VALUES ('\xa0e87c09668c7fddd9dacf1054084d600b474144f2a50fde4721523337ba7b87', 3456789012345);
INSERT INTO public.drafts VALUES ('0e/0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e', 7, 1780000069000, 'main', NULL);
INSERT INTO public.garbage VALUES ('07/07070707070707070707070707070707', 22, NULL, 1780000067000, 'main');
INSERT INTO public.garbage VALUES ('0a/0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a', 5, NULL, 1780000069000, 'main');
INSERT INTO public.garbage VALUES ('0b/0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b', 5242887, '\x7b2268617368223a22303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030222c226d756c746970617274223a226f662061206275636b6574222c227061727473223a5b225c22657461675c22225d2c2273697a65223a353234323838302c227461696c223a377d', 1780000069000, 'main');
INSERT INTO public.layer_indexes VALUES ('sha256:de1610e37850cee80a7cabdd5a9f2daffd779f09dfe6ad24d8d3ee58127ad721', '{"diff_id":"sha256:00"}', '', 1780000069000);
INSERT INTO public.layer_indexes VALUES ('sha256:9006a7c79a7d38292b6d55fa962ab35c3dce4a1e1107d18fe9ea061299e71785', '', 'it is no tar file', 1780000069000);
INSERT INTO public.manifest_contents VALUES ('sha256:9ad77eb49cd794c89a2ebd867f1e2bd1dbc8f07275f44a4c5e5f7a66b7832bc5', '\x7b22736368656d6156657273696f6e223a322c226d6564696154797065223a226170706c69636174696f6e2f766e642e6f63692e696d6167652e6d616e69666573742e76312b6a736f6e222c22636f6e666967223a7b226d6564696154797065223a226170706c69636174696f6e2f766e642e6f63692e696d6167652e636f6e6669672e76312b6a736f6e222c22646967657374223a227368613235363a39643939613735313731616561303030633731316233346330653565336632386433643533376464393964313130656166626662633262643865353263326266222c2273697a65223a33377d2c226c6179657273223a5b7b226d6564696154797065223a226170706c69636174696f6e2f766e642e6f63692e696d6167652e6c617965722e76312e7461722b677a6970222c22646967657374223a227368613235363a64653136313065333738353063656538306137636162646435613966326461666664373739663039646665366164323464386433656535383132376164373231222c2273697a65223a31367d2c7b226d6564696154797065223a226170706c69636174696f6e2f766e642e6f63692e696d6167652e6c617965722e76312e7461722b677a6970222c22646967657374223a227368613235363a37643531336365366336313337313430393563633331653464313935313933626538383131356363623663306665303663323236663465393932656632613131222c2273697a65223a31367d2c7b226d6564696154797065223a226170706c69636174696f6e2f766e642e6f63692e696d6167652e6c617965722e76312e7461722b677a6970222c22646967657374223a227368613531323a3733363765343431303564356634623136373761363766366132396331643139646234623139663439303838323965613162323934383434316166363039366662643339363238636366343830306334653865656236366330633763643263363762333837353131336165623732396233393930333736616566373430616334222c2273697a65223a31377d5d7d');
INSERT INTO public.manifest_contents VALUES ('sha256:b7b3a2140ae970fcc1dfd2c91098fab6575dc5d806db5c6b6244f04dc519d504', '\x7b22736368656d6156657273696f6e223a322c226d6564696154797065223a226170706c69636174696f6e2f766e642e6f63692e696d6167652e6d616e69666573742e76312b6a736f6e222c22636f6e666967223a7b226d6564696154797065223a226170706c69636174696f6e2f766e642e6f63692e696d6167652e636f6e6669672e76312b6a736f6e222c22646967657374223a227368613235363a39643939613735313731616561303030633731316233346330653565336632386433643533376464393964313130656166626662633262643865353263326266222c2273697a65223a33377d2c226c6179657273223a5b7b226d6564696154797065223a226170706c69636174696f6e2f766e642e6f63692e696d6167652e6c617965722e76312e7461722b677a6970222c22646967657374223a227368613235363a39303036613763373961376433383239326236643535666139363261623335633364636534613165313130376431386665396561303631323939653731373835222c2273697a65223a32307d5d7d');
INSERT INTO public.manifest_contents VALUES ('sha256:988c09db3baaa5064bc51fefa7d5a04a56f4fed8e75a92d8988af8d90f752f4b', '\x7b22736368656d6156657273696f6e223a322c226d6564696154797065223a226170706c69636174696f6e2f766e642e6f63692e696d6167652e696e6465782e76312b6a736f6e222c226d616e696665737473223a5b7b226d6564696154797065223a226170706c69636174696f6e2f766e642e6f63692e696d6167652e6d616e69666573742e76312b6a736f6e222c22646967657374223a227368613235363a39616437376562343963643739346338396132656264383637663165326264316462633866303732373566343461346335653566376136366237383332626335222c2273697a65223a3736397d2c7b226d6564696154797065223a226170706c69636174696f6e2f766e642e6f63692e696d6167652e6d616e69666573742e76312b6a736f6e222c22646967657374223a227368613235363a62376233613231343061653937306663633164666432633931303938666162363537356463356438303664623563366236323434663034646335313964353034222c2273697a65223a3339397d5d7d');
INSERT INTO public.manifest_contents VALUES ('sha256:5dbb8aa520ecac84d5e266e95823567e56cc069c6a4b75a047a46cff1a4e37cb', '\x7b22736368656d6156657273696f6e223a322c226d6564696154797065223a226170706c69636174696f6e2f766e642e6f63692e696d6167652e6d616e69666573742e76312b6a736f6e222c22636f6e666967223a7b7d2c226c6179657273223a5b5d2c227375626a656374223a7b226d6564696154797065223a226170706c69636174696f6e2f766e642e6f63692e696d6167652e696e6465782e76312b6a736f6e222c22646967657374223a227368613235363a39383863303964623362616161353036346263353166656661376435613034613536663466656438653735613932643839383861663864393066373532663462222c2273697a65223a3339337d7d');
INSERT INTO public.manifest_references VALUES (8070450532247928832, 'sha256:9ad77eb49cd794c89a2ebd867f1e2bd1dbc8f07275f44a4c5e5f7a66b7832bc5', 'config', 'sha256:9d99a75171aea000c711b34c0e5e3f28d3d537dd99d110eafbfbc2bd8e52c2bf');
INSERT INTO public.manifest_references VALUES (8070450532247928832, 'sha256:9ad77eb49cd794c89a2ebd867f1e2bd1dbc8f07275f44a4c5e5f7a66b7832bc5', 'layer', 'sha256:de1610e37850cee80a7cabdd5a9f2daffd779f09dfe6ad24d8d3ee58127ad721');
INSERT INTO public.manifest_references VALUES (8070450532247928832, 'sha256:9ad77eb49cd794c89a2ebd867f1e2bd1dbc8f07275f44a4c5e5f7a66b7832bc5', 'layer', 'sha256:7d513ce6c613714095cc31e4d195193be88115ccb6c0fe06c226f4e992ef2a11');
INSERT INTO public.manifest_references VALUES (8070450532247928832, 'sha256:9ad77eb49cd794c89a2ebd867f1e2bd1dbc8f07275f44a4c5e5f7a66b7832bc5', 'layer', 'sha512:7367e44105d5f4b1677a67f6a29c1d19db4b19f4908829ea1b2948441af6096fbd39628ccf4800c4e8eeb66c0c7cd2c67b3875113aeb729b3990376aef740ac4');
INSERT INTO public.manifest_references VALUES (8070450532247928832, 'sha256:b7b3a2140ae970fcc1dfd2c91098fab6575dc5d806db5c6b6244f04dc519d504', 'config', 'sha256:9d99a75171aea000c711b34c0e5e3f28d3d537dd99d110eafbfbc2bd8e52c2bf');
INSERT INTO public.manifest_references VALUES (8070450532247928832, 'sha256:b7b3a2140ae970fcc1dfd2c91098fab6575dc5d806db5c6b6244f04dc519d504', 'layer', 'sha256:9006a7c79a7d38292b6d55fa962ab35c3dce4a1e1107d18fe9ea061299e71785');
INSERT INTO public.manifest_references VALUES (8070450532247928832, 'sha256:988c09db3baaa5064bc51fefa7d5a04a56f4fed8e75a92d8988af8d90f752f4b', 'manifest', 'sha256:9ad77eb49cd794c89a2ebd867f1e2bd1dbc8f07275f44a4c5e5f7a66b7832bc5');
INSERT INTO public.manifest_references VALUES (8070450532247928832, 'sha256:988c09db3baaa5064bc51fefa7d5a04a56f4fed8e75a92d8988af8d90f752f4b', 'manifest', 'sha256:b7b3a2140ae970fcc1dfd2c91098fab6575dc5d806db5c6b6244f04dc519d504');
INSERT INTO public.manifest_references VALUES (1234567890123, 'sha256:b7b3a2140ae970fcc1dfd2c91098fab6575dc5d806db5c6b6244f04dc519d504', 'config', 'sha256:9d99a75171aea000c711b34c0e5e3f28d3d537dd99d110eafbfbc2bd8e52c2bf');
INSERT INTO public.manifest_references VALUES (1234567890123, 'sha256:b7b3a2140ae970fcc1dfd2c91098fab6575dc5d806db5c6b6244f04dc519d504', 'layer', 'sha256:9006a7c79a7d38292b6d55fa962ab35c3dce4a1e1107d18fe9ea061299e71785');
INSERT INTO public.manifests VALUES (8070450532247928832, 'sha256:988c09db3baaa5064bc51fefa7d5a04a56f4fed8e75a92d8988af8d90f752f4b', 'application/vnd.oci.image.index.v1+json', NULL, NULL, '{}', 393, 1780000005000, 0, 'waiting', 0, 0, '', 1780000005000);
INSERT INTO public.manifests VALUES (8070450532247928832, 'sha256:5dbb8aa520ecac84d5e266e95823567e56cc069c6a4b75a047a46cff1a4e37cb', 'application/vnd.oci.image.manifest.v1+json', 'application/vnd.example.signature', 'sha256:988c09db3baaa5064bc51fefa7d5a04a56f4fed8e75a92d8988af8d90f752f4b', '{"org.example.note":"von Hand, “signed” — it''s \\ \"this\"","org.example.empty":""}', 260, 1780000006000, 0, 'waiting', 0, 0, '', 1780000006000);
INSERT INTO public.manifests VALUES (8070450532247928832, 'sha256:9ad77eb49cd794c89a2ebd867f1e2bd1dbc8f07275f44a4c5e5f7a66b7832bc5', 'application/vnd.oci.image.manifest.v1+json', NULL, NULL, '{}', 769, 1780000004000, 1780000067000, 'done', 0, 0, '', 1780000004000);
INSERT INTO public.manifests VALUES (8070450532247928832, 'sha256:b7b3a2140ae970fcc1dfd2c91098fab6575dc5d806db5c6b6244f04dc519d504', 'application/vnd.oci.image.manifest.v1+json', NULL, NULL, '{}', 399, 1780000004000, 0, 'failed', 0, 0, 'layer 1 is no tar file', 0);
INSERT INTO public.manifests VALUES (1234567890123, 'sha256:b7b3a2140ae970fcc1dfd2c91098fab6575dc5d806db5c6b6244f04dc519d504', 'application/vnd.oci.image.manifest.v1+json', NULL, NULL, '{}', 399, 1780000066000, 0, 'waiting', 1780000669000, 2, '', 1780000066000);
INSERT INTO public.packs VALUES (3456789012345, '0c/0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c', 21, 'sha256:392e7d1686a7932f6a3cf3e966cb36cd169674df3dab263df6691b3761f3725b', 22, 1, 'present', 1780000067000, 0, 0, 0, 1, 0);
INSERT INTO public.places VALUES ('one', '11/11111111111111111111111111111111', 1780000069000);
INSERT INTO public.recipe_packs VALUES ('sha256:a0e87c09668c7fddd9dacf1054084d600b474144f2a50fde4721523337ba7b87', 3456789012345);
INSERT INTO public.recipes VALUES ('sha256:a0e87c09668c7fddd9dacf1054084d600b474144f2a50fde4721523337ba7b87', '0d/0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d', 39, 'sha256:9f89950281f00d83acf2218df63a15ac39e7c4bcac85437f420a0138a504c9d8', 22, 1780000067000, 0, 0, 'chunks');
INSERT INTO public.replicas VALUES ('0f/0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f', 'one', '02/02020202020202020202020202020202', 0, 0, 0, 16, 'sha256:de1610e37850cee80a7cabdd5a9f2daffd779f09dfe6ad24d8d3ee58127ad721', 16, 1780000069000, 0, 1780000069000);
INSERT INTO public.replicas VALUES ('10/10101010101010101010101010101010', 'one', '03/03030303030303030303030303030303', 2, 1, 2, 7, 'sha256:32767e93e90f586a0ee6fa8fa6676ee57248751209120981c1f7e7c45ab2a947', 16, 1780000069000, 1780000069000, 1780000069000);
INSERT INTO public.repositories VALUES (8070450532247928832, 'library/nginx', 1780000000000, 1);
INSERT INTO public.repositories VALUES (1234567890123, 'team/app', 1780000066000, 1);
INSERT INTO public.repositories VALUES (77, 'empty/one', 1780000068000, 1);
INSERT INTO public.repository_blobs VALUES (8070450532247928832, 'sha256:de1610e37850cee80a7cabdd5a9f2daffd779f09dfe6ad24d8d3ee58127ad721', 1780000004000, 0, 1);
INSERT INTO public.repository_blobs VALUES (8070450532247928832, 'sha256:7d513ce6c613714095cc31e4d195193be88115ccb6c0fe06c226f4e992ef2a11', 1780000004000, 0, 1);
INSERT INTO public.repository_blobs VALUES (8070450532247928832, 'sha512:7367e44105d5f4b1677a67f6a29c1d19db4b19f4908829ea1b2948441af6096fbd39628ccf4800c4e8eeb66c0c7cd2c67b3875113aeb729b3990376aef740ac4', 1780000004000, 0, 1);
INSERT INTO public.repository_blobs VALUES (8070450532247928832, 'sha256:9d99a75171aea000c711b34c0e5e3f28d3d537dd99d110eafbfbc2bd8e52c2bf', 1780000004000, 0, 1);
INSERT INTO public.repository_blobs VALUES (8070450532247928832, 'sha256:9006a7c79a7d38292b6d55fa962ab35c3dce4a1e1107d18fe9ea061299e71785', 1780000004000, 0, 1);
INSERT INTO public.repository_blobs VALUES (1234567890123, 'sha256:9d99a75171aea000c711b34c0e5e3f28d3d537dd99d110eafbfbc2bd8e52c2bf', 1780000066000, 0, 1);
INSERT INTO public.repository_blobs VALUES (1234567890123, 'sha256:9006a7c79a7d38292b6d55fa962ab35c3dce4a1e1107d18fe9ea061299e71785', 1780000066000, 0, 1);
INSERT INTO public.repository_blobs VALUES (1234567890123, 'sha256:29a47c834a8efe4bc2833eb4d847a61f31950c0cac92352c1e8256b9c4c4d061', 1780000067000, 1, 1);
INSERT INTO public.rules VALUES ('copies', 'some rules');
INSERT INTO public.schema_versions VALUES (1);
INSERT INTO public.schema_versions VALUES (2);
INSERT INTO public.schema_versions VALUES (3);
INSERT INTO public.schema_versions VALUES (4);
INSERT INTO public.schema_versions VALUES (5);
INSERT INTO public.schema_versions VALUES (6);
INSERT INTO public.tags VALUES (8070450532247928832, 'latest', 'sha256:988c09db3baaa5064bc51fefa7d5a04a56f4fed8e75a92d8988af8d90f752f4b', 1780000005000, 1780000005000, 0);
INSERT INTO public.tags VALUES (1234567890123, 'v1', 'sha256:b7b3a2140ae970fcc1dfd2c91098fab6575dc5d806db5c6b6244f04dc519d504', 1780000066000, 1780000067000, 0);
INSERT INTO public.tags VALUES (8070450532247928832, '1.29', 'sha256:9ad77eb49cd794c89a2ebd867f1e2bd1dbc8f07275f44a4c5e5f7a66b7832bc5', 1780000004000, 1780000004000, 1780000067000);
INSERT INTO public.uploads VALUES ('11111111111111111111111111111111', 77, '08/08080808080808080808080808080808', 8, NULL, 1780000068000, 1780000068500, NULL);
INSERT INTO public.uploads VALUES ('22222222222222222222222222222222', 1234567890123, '09/09090909090909090909090909090909', 5242887, '\x7b2268617368223a22303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030222c226d756c746970617274223a226f662061206275636b6574222c227061727473223a5b225c22657461675c22225d2c2273697a65223a353234323838302c227461696c223a377d', 1780000068500, 1780000069000, NULL);
ALTER TABLE ONLY public.blobs
    ADD CONSTRAINT blobs_object_key UNIQUE (object);
ALTER TABLE ONLY public.blobs
    ADD CONSTRAINT blobs_pkey PRIMARY KEY (digest);
ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT chunks_pkey PRIMARY KEY (digest);
ALTER TABLE ONLY public.drafts
    ADD CONSTRAINT drafts_pkey PRIMARY KEY (object);
ALTER TABLE ONLY public.garbage
    ADD CONSTRAINT garbage_pkey PRIMARY KEY (object);
ALTER TABLE ONLY public.layer_indexes
    ADD CONSTRAINT layer_indexes_pkey PRIMARY KEY (layer);
ALTER TABLE ONLY public.manifest_contents
    ADD CONSTRAINT manifest_contents_pkey PRIMARY KEY (digest);
ALTER TABLE ONLY public.manifest_references
    ADD CONSTRAINT manifest_references_pkey PRIMARY KEY (repository, manifest, digest, kind);
ALTER TABLE ONLY public.manifests
    ADD CONSTRAINT manifests_pkey PRIMARY KEY (repository, digest);
ALTER TABLE ONLY public.packs
    ADD CONSTRAINT packs_object_key UNIQUE (object);
ALTER TABLE ONLY public.packs
    ADD CONSTRAINT packs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.places
    ADD CONSTRAINT places_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.recipe_packs
    ADD CONSTRAINT recipe_packs_pkey PRIMARY KEY (recipe, pack);
ALTER TABLE ONLY public.recipes
    ADD CONSTRAINT recipes_object_key UNIQUE (object);
ALTER TABLE ONLY public.recipes
    ADD CONSTRAINT recipes_pkey PRIMARY KEY (digest);
ALTER TABLE ONLY public.replicas
    ADD CONSTRAINT replicas_pkey PRIMARY KEY (key);
ALTER TABLE ONLY public.repositories
    ADD CONSTRAINT repositories_name_key UNIQUE (name);
ALTER TABLE ONLY public.repositories
    ADD CONSTRAINT repositories_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.repository_blobs
    ADD CONSTRAINT repository_blobs_pkey PRIMARY KEY (repository, digest);
ALTER TABLE ONLY public.rules
    ADD CONSTRAINT rules_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.schema_versions
    ADD CONSTRAINT schema_versions_pkey PRIMARY KEY (version);
ALTER TABLE ONLY public.tags
    ADD CONSTRAINT tags_pkey PRIMARY KEY (repository, name);
ALTER TABLE ONLY public.uploads
    ADD CONSTRAINT uploads_object_key UNIQUE (object);
ALTER TABLE ONLY public.uploads
    ADD CONSTRAINT uploads_pkey PRIMARY KEY (id);
CREATE INDEX blobs_by_dedup ON public.blobs USING btree (dedup_state, dedup_due, changed, digest);
CREATE INDEX blobs_popular ON public.blobs USING btree (popular_until) WHERE (popular_until > 0);
CREATE INDEX blobs_unchecked ON public.blobs USING btree (state, changed, digest) WHERE (unchecked = 1);
CREATE INDEX blobs_unplaced ON public.blobs USING btree (placing_due, digest) WHERE (unplaced > 0);
CREATE INDEX chunks_by_pack ON public.chunks USING btree (pack);
CREATE INDEX drafts_by_since ON public.drafts USING btree (since, object);
CREATE INDEX manifest_references_by_digest ON public.manifest_references USING btree (repository, digest);
CREATE INDEX manifests_by_digest ON public.manifests USING btree (digest);
CREATE INDEX manifests_by_indexing ON public.manifests USING btree (indexing, indexing_due, created);
CREATE INDEX manifests_by_subject ON public.manifests USING btree (repository, subject, digest);
CREATE INDEX packs_condemned ON public.packs USING btree (id) WHERE (state = 'condemned'::text);
CREATE INDEX packs_unchecked ON public.packs USING btree (created, id) WHERE (unchecked = 1);
CREATE INDEX packs_unplaced ON public.packs USING btree (placing_due, id) WHERE (unplaced > 0);
CREATE INDEX recipe_packs_by_pack ON public.recipe_packs USING btree (pack, recipe);
CREATE UNIQUE INDEX replicas_by_object ON public.replicas USING btree (object, place, data, parity, shard);
CREATE INDEX replicas_by_place ON public.replicas USING btree (place, key);
CREATE INDEX repositories_unchecked ON public.repositories USING btree (created, id) WHERE (unchecked = 1);
CREATE INDEX repository_blobs_by_digest ON public.repository_blobs USING btree (digest);
CREATE INDEX repository_blobs_unchecked ON public.repository_blobs USING btree (added, repository, digest) WHERE (unchecked = 1);
CREATE INDEX repository_blobs_unplaced ON public.repository_blobs USING btree (repository, digest) WHERE (unplaced > 0);
CREATE INDEX tags_by_digest ON public.tags USING btree (repository, digest);
CREATE INDEX uploads_by_repository ON public.uploads USING btree (repository);
CREATE INDEX uploads_by_touched ON public.uploads USING btree (touched, id);
ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT chunks_pack_fkey FOREIGN KEY (pack) REFERENCES public.packs(id);
ALTER TABLE ONLY public.manifest_references
    ADD CONSTRAINT manifest_references_repository_manifest_fkey FOREIGN KEY (repository, manifest) REFERENCES public.manifests(repository, digest);
ALTER TABLE ONLY public.manifests
    ADD CONSTRAINT manifests_digest_fkey FOREIGN KEY (digest) REFERENCES public.manifest_contents(digest);
ALTER TABLE ONLY public.manifests
    ADD CONSTRAINT manifests_repository_fkey FOREIGN KEY (repository) REFERENCES public.repositories(id);
ALTER TABLE ONLY public.recipe_packs
    ADD CONSTRAINT recipe_packs_pack_fkey FOREIGN KEY (pack) REFERENCES public.packs(id);
ALTER TABLE ONLY public.recipe_packs
    ADD CONSTRAINT recipe_packs_recipe_fkey FOREIGN KEY (recipe) REFERENCES public.recipes(digest);
ALTER TABLE ONLY public.repository_blobs
    ADD CONSTRAINT repository_blobs_digest_fkey FOREIGN KEY (digest) REFERENCES public.blobs(digest);
ALTER TABLE ONLY public.repository_blobs
    ADD CONSTRAINT repository_blobs_repository_fkey FOREIGN KEY (repository) REFERENCES public.repositories(id);
ALTER TABLE ONLY public.tags
    ADD CONSTRAINT tags_repository_digest_fkey FOREIGN KEY (repository, digest) REFERENCES public.manifests(repository, digest);
ALTER TABLE ONLY public.uploads
    ADD CONSTRAINT uploads_repository_fkey FOREIGN KEY (repository) REFERENCES public.repositories(id);

