BEGIN TRANSACTION;
CREATE TABLE commands (
	id INTEGER NOT NULL, 
	rollout_id VARCHAR NOT NULL, 
	verb VARCHAR NOT NULL, 
	actor VARCHAR NOT NULL, 
	reason TEXT NOT NULL, 
	args TEXT NOT NULL, 
	at VARCHAR(27) NOT NULL, 
	consumed_at VARCHAR(27), 
	PRIMARY KEY (id), 
	CONSTRAINT fk_commands_rollout_id FOREIGN KEY(rollout_id) REFERENCES rollouts (id)
);
INSERT INTO "commands" VALUES(1,'r-old','pause','ann','look','{}','2026-11-30T12:00:00.000000Z',NULL);
CREATE TABLE journal (
	rollout_id VARCHAR NOT NULL, 
	seq INTEGER NOT NULL, 
	at VARCHAR(27) NOT NULL, 
	kind VARCHAR NOT NULL, 
	actor VARCHAR NOT NULL, 
	text TEXT NOT NULL, 
	data TEXT NOT NULL, 
	prev_hash VARCHAR NOT NULL, 
	hash VARCHAR NOT NULL, 
	CONSTRAINT pk_journal PRIMARY KEY (rollout_id, seq), 
	CONSTRAINT fk_journal_rollout_id FOREIGN KEY(rollout_id) REFERENCES rollouts (id)
);
INSERT INTO "journal" VALUES('r-old',1,'2026-11-30T12:00:01.000005Z','created','ann','it began','{}','0000000000000000000000000000000000000000000000000000000000000000r-old','bd82f5aaa8941a823019b78c2260cf5eb8a65293914e9140ab47041cfccfcf45');
INSERT INTO "journal" VALUES('r-old',2,'2026-11-30T12:00:01.000005Z','intent','ann','join at weight 5','{"effect":{"args":{"deployment":"b","route":"chat","weight":5},"fact":null,"verb":"join","why":"first rung"}}','bd82f5aaa8941a823019b78c2260cf5eb8a65293914e9140ab47041cfccfcf45','7899912e3456e0886ab48aa0546bee0ccdbde7a4850102925af9f409ffffaf8a');
CREATE TABLE meta (
	"key" VARCHAR NOT NULL, 
	value VARCHAR NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "meta" VALUES('store_id','00000000-0000-0000-0000-000000000001');
CREATE TABLE reports (
	id INTEGER NOT NULL, 
	spec_digest VARCHAR NOT NULL, 
	report TEXT NOT NULL, 
	created VARCHAR(27) NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "reports" VALUES(1,'sha256:spec','{"floor":8}','2026-11-30T12:00:00.000000Z');
CREATE TABLE rollout_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT rollout_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "rollout_version" VALUES('0002');
CREATE TABLE rollouts (
	id VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	server VARCHAR NOT NULL, 
	route VARCHAR NOT NULL, 
	plan_digest VARCHAR NOT NULL, 
	"plan" TEXT NOT NULL, 
	plan_text TEXT NOT NULL, 
	phase VARCHAR NOT NULL, 
	state TEXT NOT NULL, 
	active BOOLEAN NOT NULL, 
	owner VARCHAR, 
	fence INTEGER NOT NULL, 
	lease_until VARCHAR(27), 
	next_wake VARCHAR(27), 
	created VARCHAR(27) NOT NULL, 
	ended VARCHAR(27), 
	exit_code INTEGER, 
	head_seq INTEGER NOT NULL, 
	head_hash VARCHAR NOT NULL, seal VARCHAR, 
	PRIMARY KEY (id)
);
INSERT INTO "rollouts" VALUES('r-old','qwen-v2','http://gpustack.example','chat','sha256:00','{"kind":"RolloutPlan","route":"chat"}','kind: RolloutPlan
route: chat  # ü
','running','{"created":"2026-11-30T12:00:00Z","ended":null,"entered":"2026-11-30T12:00:00Z","exit_code":null,"facts":{},"hold":null,"id":"r-old","intent":{"at":"2026-11-30T12:00:01.000005Z","effect":{"args":{"deployment":"b","route":"chat","weight":5},"fact":null,"verb":"join","why":"first rung"},"number":1},"intents":1,"name":"qwen-v2","paused":null,"phase":"running","plan_digest":"sha256:00","route":"chat","server":"http://gpustack.example","step":"declare","target":0,"undo":null,"waiting":null}',1,'another-host:1:1.00000000',1,'2026-11-30T12:00:30.000000Z','2026-11-30T12:00:00.000000Z','2026-11-30T12:00:00.000000Z',NULL,NULL,2,'7899912e3456e0886ab48aa0546bee0ccdbde7a4850102925af9f409ffffaf8a','64cfd41919599bfc69998fe2da568e35323c3a5544bcda4cce1a758367cd42dd');
CREATE UNIQUE INDEX one_active_per_route ON rollouts (server, route) WHERE active;
CREATE INDEX ix_rollouts_route ON rollouts (route);
CREATE INDEX ix_commands_rollout_id ON commands (rollout_id);
CREATE INDEX ix_reports_spec_digest ON reports (spec_digest);
CREATE TRIGGER journal_no_update BEFORE UPDATE ON journal
       BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER journal_no_delete BEFORE DELETE ON journal
       BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER journal_no_replace BEFORE INSERT ON journal
       WHEN EXISTS (SELECT 1 FROM journal WHERE rollout_id = NEW.rollout_id AND seq = NEW.seq)
       BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
COMMIT;
